// MiniMax-M2: queries and keys normalised over all heads together, a part of each head rotated; sigmoid routing with a
// selection bias, renormalised. Files name the layer block_sparse_moe and its projections w1 (gate), w3 (up), w2
// (down); transformers 5 and the adapters it writes say mlp.
#include "base/result.h"
#include "model/families/dense_first.h"

namespace cadre {

Status build_minimax_m2(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  attention.qk_norm = AttentionOptions::QkNorm::kWhole;
  CADRE_TRY(want_bool(json, "use_qk_norm", true));
  CADRE_TRY(want_bool(json, "use_routing_bias", true));
  CADRE_TRY(want_int(json, "shared_intermediate_size", 0));
  CADRE_TRY(want_string(json, "qk_norm_type", {"per_layer"}));
  CADRE_TRY(want_string(json, "scoring_func", {"sigmoid"}));
  // Factors of the residual stream that MiniMax-Text-01 had.
  for (const char* key : {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}) {
    CADRE_TRY(want_double(json, key, 1));
  }
  CADRE_TRY(want_bool(json, "norm_topk_prob", true));
  CADRE_TRY(want_int(json, "sliding_window", 0));
  // Noise of training, and the sizes of layers that it does not have.
  b.ignored_fields.insert(b.ignored_fields.end(),
                          {"router_jitter_noise", "mlp_intermediate_size", "shared_moe_mode", "max_model_len"});
  if (json.has("attn_type_list")) {
    CADRE_ASSIGN(const std::vector<std::int64_t> kinds, json.get_int_list("attn_type_list"));
    for (const std::int64_t kind : kinds) {
      if (kind != 1) {
        return error(Code::kUnsupported, json.where("attn_type_list"), " has ", kind,
                     ", and this family is run with full attention, 1, only");
      }
    }
  }
  // Published configs give the rotated part as a number of dimensions.
  CADRE_ASSIGN(const std::int64_t rotated, json.get_int_or("rotary_dim", attention.head_dim, 2, attention.head_dim));
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim,
                                          static_cast<double>(rotated) / static_cast<double>(attention.head_dim)));
  attention.rope = &rope;

  LayerSpec spec;
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  CADRE_ASSIGN(const std::int64_t experts, config_int(json, {"num_local_experts", "num_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"num_experts_per_tok"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"intermediate_size"}));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = b.config.hidden;
  spec.routing.kind = Routing::kSigmoidTopK;
  spec.routing.renormalize = true;
  spec.routing.selection_bias = true;

  const std::string layer_name = sparse_layer_name(b, "experts.gate_up_proj");
  CADRE_TRY(ignore_draft_layers(b, layers));
  b.ignored_prefixes.emplace_back("model.mtp");

  return build_decoder(b, network,
                       {.attention =
                            [&](int, const std::string& prefix) {
                              attention.module = prefix + ".self_attn";
                              return make_attention(b, attention);
                            },
                        .feed_forward =
                            [&](int layer, const std::string& prefix) {
                              const std::string mlp = prefix + "." + layer_name;
                              return make_moe(
                                  b, {.layer = layer,
                                      .spec = spec,
                                      .router = mlp + ".gate",
                                      .selection_bias = mlp + ".e_score_correction_bias",
                                      .experts = {.module = mlp + ".experts", .gate = "w1", .up = "w3", .down = "w2"}});
                            },
                        .layers = layers});
}

}  // namespace cadre
