// Phi-3.5-MoE: LayerNorm with a bias instead of RMSNorm, biased attention and head, the two passes of SparseMixer
// (arXiv:2409.12136) as router, LongRoPE whose cos and sin are multiplied by short_mscale and long_mscale of the
// config. Beyond original_max_position_embeddings the long factors hold, as the model was trained. Files name the layer
// block_sparse_moe and its parts w1 (gate), w3 (up), w2 (down) and gate; transformers 5 and its adapters say mlp and
// router.
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"

namespace cadre {
namespace {

// The config's own multiplier of cos and sin takes the place of LongRoPE's formula.
Status read_mscale(const Json& json, Rope& rope) {
  const Json* fields = json.has("rope_parameters") ? json.find("rope_parameters") : json.find("rope_scaling");
  if (fields == nullptr || !fields->is_object()) return {};
  CADRE_ASSIGN(std::string type, fields->get_string_or("type", "default"));
  CADRE_ASSIGN(type, fields->get_string_or("rope_type", type));
  if (type == "default") return {};
  if (type != "longrope" && type != "yarn" && type != "llama3") {
    return error(Code::kUnsupported, fields->where("rope_type"), " is '", type,
                 "', want one of: default, longrope, yarn, llama3");
  }
  CADRE_ASSIGN(const double small, fields->get_double("short_mscale"));
  CADRE_ASSIGN(const double large, fields->get_double("long_mscale"));
  if (small != large) {
    return error(Code::kUnsupported, fields->where("long_mscale"), " is ", large, " and short_mscale is ", small,
                 ", want equal ones as in the published model");
  }
  if (!(small > 0 && small < 1e6)) {
    return error(Code::kInvalidFile, fields->where("short_mscale"), " is ", small, ", want a number in (0, 1e6)");
  }
  rope.scale = static_cast<float>(small);
  return {};
}

Result<LayerSpec> read_experts(const ModelConfig& c) {
  const Json& json = c.json;
  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(c, "num_local_experts", "intermediate_size"));
  CADRE_ASSIGN(const double jitter, json.get_double_or("router_jitter_noise", 0.01));
  if (jitter != 0.01) {
    return error(Code::kUnsupported, json.where("router_jitter_noise"), " is ", jitter,
                 ": half the gap at which the router drops an expert, want 0.01 as in the published model");
  }
  if (spec.top_k != 2) {
    return error(Code::kUnsupported, json.where("num_experts_per_tok"), " is ", spec.top_k,
                 ": the router of phimoe has two passes, want 2");
  }
  spec.routing = {.kind = Routing::kSparseMixer};
  return spec;
}

}  // namespace

Status build_phimoe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_TRY(json.get_double("rms_norm_eps").status());  // the default of other families is another
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  CADRE_ASSIGN(attention.window, read_sliding_window(json));
  attention.out_bias = attention.qkv_bias;
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(Rope rope, make_rope(b, attention.head_dim));
  CADRE_TRY(read_mscale(json, rope));
  attention.rope = &rope;
  CADRE_ASSIGN(const LayerSpec spec, read_experts(b.config));
  b.ignored_fields.emplace_back("input_jitter_noise");  // of training
  CADRE_ASSIGN(const bool head_bias, json.get_bool_or("lm_head_bias", false));

  const std::string layer_name = sparse_layer_name(b, "router.weight");
  const bool v5 = layer_name == "mlp";
  const std::string router = v5 ? "router" : "gate";

  return build_decoder(b, network,
                       {.attention =
                            [&](int, const std::string& prefix) {
                              attention.module = prefix + ".self_attn";
                              return make_attention(b, attention);
                            },
                        .feed_forward =
                            [&](int layer, const std::string& prefix) {
                              const std::string mlp = prefix + "." + layer_name;
                              b.targets.prefix_aliases.emplace_back(
                                  prefix + (v5 ? ".block_sparse_moe.gate" : ".mlp.router"), mlp + "." + router);
                              return make_moe(
                                  b, {.layer = layer,
                                      .spec = spec,
                                      .router = mlp + "." + router,
                                      .experts = {.module = mlp + ".experts", .gate = "w1", .up = "w3", .down = "w2"}});
                            },
                        .layers = layers,
                        .norm = {.layer_norm = true},
                        .head_bias = head_bias});
}

}  // namespace cadre
