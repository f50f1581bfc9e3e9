// ERNIE 4.5 (21B-A3B, 300B-A47B): neighbouring elements rotated; softmax over all experts, chosen with a selection bias
// and weighed without it, renormalised; MoE layers by start, end and interval; shared experts.
#include <algorithm>

#include "base/result.h"
#include "model/families/dense_first.h"

namespace cadre {

Status build_ernie4_5_moe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("use_bias", false));
  attention.out_bias = attention.qkv_bias;
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(Rope rope, make_rope(b, attention.head_dim));
  rope.interleaved = true;
  attention.rope = &rope;

  DenseFirst experts;
  LayerSpec& spec = experts.spec;
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  CADRE_ASSIGN(const std::int64_t count, config_int(json, {"moe_num_experts", "num_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"moe_k", "num_experts_per_tok"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"moe_intermediate_size"}));
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("moe_num_shared_experts", 2, 0, 1024));
  CADRE_ASSIGN(experts.dense_size, config_int(json, {"intermediate_size"}));
  CADRE_ASSIGN(const float least_sum, config_float(json, "moe_norm_min", 1e-12, 0, 1));
  // The k best of a softmax over n sum to k/n at least, so a smaller floor changes nothing.
  if (least_sum > static_cast<float>(top_k) / static_cast<float>(count)) {
    return error(Code::kUnsupported, json.where("moe_norm_min"), " is ", least_sum, ", want at most ",
                 static_cast<float>(top_k) / static_cast<float>(count), ", below which it never counts");
  }
  spec.experts = static_cast<int>(count);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = b.config.hidden;
  spec.shared_experts = static_cast<int>(shared);
  spec.shared_intermediate = shared * spec.intermediate;
  spec.routing.kind = Routing::kSoftmaxTopK;
  spec.routing.renormalize = true;
  spec.routing.selection_bias = true;
  experts.selection_bias = "moe_statics.e_score_correction_bias";
  experts.bias = attention.qkv_bias;
  spec.expert_bias = experts.bias;

  CADRE_TRY(want_bool(json, "moe_use_aux_free", true));
  CADRE_TRY(want_string(json, "moe_gate_act", {"softmax"}));
  b.ignored_fields.emplace_back("moe_capacity");  // a limit of training, where tokens may be dropped

  CADRE_ASSIGN(const std::int64_t first, json.get_int_or("moe_layer_start_index", 1, 0, kMaxLayers));
  CADRE_ASSIGN(std::int64_t last, json.get_int_or("moe_layer_end_index", -1, -1, kMaxLayers));
  CADRE_ASSIGN(const std::int64_t every, json.get_int_or("moe_layer_interval", 1, 1, kMaxLayers));
  if (last < 0) last = layers - 1;
  for (std::int64_t i = 0; i < layers; ++i) experts.sparse.push_back((i + 1) % every == 0 && i >= first && i <= last);
  // transformers 5 holds the bias under the router.
  const auto first_sparse = std::find(experts.sparse.begin(), experts.sparse.end(), true) - experts.sparse.begin();
  const std::string under_router = "gate." + experts.selection_bias;
  if (b.loader.has("model.layers." + std::to_string(first_sparse) + ".mlp." + under_router)) {
    experts.selection_bias = under_router;
  }
  b.ignored_prefixes.emplace_back("model.mtp_");  // layers for multi-token prediction

  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer,
                           const std::string& prefix) { return make_dense_first(b, experts, layer, prefix + ".mlp"); },
       .layers = layers});
}

}  // namespace cadre
