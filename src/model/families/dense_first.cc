#include "model/families/dense_first.h"

#include "base/result.h"

namespace cadre {

Result<std::unique_ptr<Mixer>> make_dense_first(Builder& b, const DenseFirst& o, int layer, const std::string& mlp) {
  MlpOptions dense{.module = mlp,
                   .hidden = o.spec.hidden,
                   .intermediate = o.dense_size,
                   .activation = o.spec.activation,
                   .bias = o.bias};
  if (!o.sparse[static_cast<std::size_t>(layer)]) return make_mlp(b, dense);
  MoeOptions moe{.layer = layer,
                 .spec = o.spec,
                 .router = mlp + ".gate",
                 .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"}};
  if (o.spec.routing.selection_bias) moe.selection_bias = mlp + "." + o.selection_bias;
  if (o.spec.shared_intermediate > 0) {
    dense.module = mlp + "." + o.shared;
    dense.intermediate = o.spec.shared_intermediate;
    moe.shared = dense;
  }
  return make_moe(b, moe);
}

Result<DenseFirst> read_sigmoid_dense_first(const ModelConfig& c, std::int64_t layers, bool renormalize_default,
                                            std::int64_t shared_default, std::int64_t dense_default) {
  const Json& json = c.json;
  DenseFirst o;
  LayerSpec& spec = o.spec;
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  CADRE_ASSIGN(const std::int64_t experts,
               config_int(json, {"n_routed_experts", "num_local_experts", "num_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"num_experts_per_tok"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"moe_intermediate_size"}));
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("n_shared_experts", shared_default, 0, 1024));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", renormalize_default));
  CADRE_ASSIGN(spec.routing.scale, config_float(json, "routed_scaling_factor", 1.0, -1e30, 1e30));
  CADRE_ASSIGN(const std::int64_t groups, json.get_int_or("n_group", 1, 1, experts));
  CADRE_ASSIGN(const std::int64_t topk_groups, json.get_int_or("topk_group", 1, 1, experts));
  CADRE_ASSIGN(const std::int64_t first, json.get_int_or("first_k_dense_replace", dense_default, 0, kMaxLayers));
  CADRE_ASSIGN(o.dense_size, json.get_int_or("intermediate_size", 1, 1, kMaxConfigSize));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.shared_experts = static_cast<int>(shared);
  spec.shared_intermediate = shared * spec.intermediate;
  spec.routing.kind = Routing::kSigmoidTopK;
  spec.routing.selection_bias = true;
  spec.routing.groups = static_cast<int>(groups);
  spec.routing.topk_groups = static_cast<int>(topk_groups);
  o.selection_bias = "gate.e_score_correction_bias";
  o.sparse.resize(static_cast<std::size_t>(layers));
  for (std::int64_t i = 0; i < layers; ++i) o.sparse[static_cast<std::size_t>(i)] = i >= first;
  return o;
}

}  // namespace cadre
