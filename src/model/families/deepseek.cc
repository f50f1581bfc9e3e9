#include "model/families/deepseek.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace cadre {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 16;  // of a head and of the latents: products of three are added up

// 1/sqrt(width of a head's query), times the square of YaRN's mscale_all_dim where the rotary embedding is scaled: the
// published code puts into the scores what its mscale leaves out of the rotation.
Result<float> score_scale(const Json& json, std::int64_t width) {
  const double plain = 1.0 / std::sqrt(static_cast<double>(width));
  Json rope;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!json.has(key)) continue;
    CADRE_ASSIGN(rope, json.get_object(key));
    break;
  }
  if (!rope.is_object()) return static_cast<float>(plain);
  CADRE_ASSIGN(std::string type, rope.get_string_or("type", "default"));
  CADRE_ASSIGN(type, rope.get_string_or("rope_type", type));
  CADRE_ASSIGN(const float all_dim, config_float(rope, "mscale_all_dim", 0, 0, 1e6));
  if (type == "default" || all_dim == 0) return static_cast<float>(plain);
  CADRE_ASSIGN(const double factor, rope.get_double("factor"));
  const double mscale = factor <= 1 ? 1.0 : 0.1 * static_cast<double>(all_dim) * std::log(factor) + 1.0;
  const auto scale = static_cast<float>(plain * mscale * mscale);
  if (!std::isfinite(scale)) {
    return error(Code::kInvalidFile, rope.where("factor"), " is ", factor, ", want a finite number");
  }
  return scale;
}

Result<MlaOptions> read_mla(Builder& b) {
  const Json& json = b.config.json;
  MlaOptions o;
  o.hidden = b.config.hidden;
  CADRE_ASSIGN(o.heads, config_int(json, {"num_attention_heads"}));
  CADRE_ASSIGN(const std::int64_t kv_heads, json.get_int_or("num_key_value_heads", o.heads, 1, kMaxConfigSize));
  if (kv_heads != o.heads) {
    return error(Code::kUnsupported, json.where("num_key_value_heads"), " is ", kv_heads,
                 ", want num_attention_heads, ", o.heads, ": every head makes its own keys of the latent vector");
  }
  // Null says that queries have no low rank; a config that says nothing means the published models' 1536.
  if (json.find("q_lora_rank") == nullptr) {
    o.q_rank = 1536;
  } else {
    CADRE_ASSIGN(o.q_rank, json.get_int_or("q_lora_rank", 0, 1, kMaxWidth));
  }
  CADRE_ASSIGN(o.kv_rank, config_int(json, {"kv_lora_rank"}, 1, kMaxWidth));
  CADRE_ASSIGN(o.nope_dim, config_int(json, {"qk_nope_head_dim"}, 1, kMaxWidth));
  CADRE_ASSIGN(o.rope_dim, config_int(json, {"qk_rope_head_dim"}, 2, kMaxWidth));
  CADRE_ASSIGN(o.value_dim, config_int(json, {"v_head_dim"}, 1, kMaxWidth));
  CADRE_ASSIGN(o.bias, json.get_bool_or("attention_bias", false));
  o.norm_eps = 1e-6f;  // of the latents, whatever rms_norm_eps says of the others
  CADRE_ASSIGN(o.rope, make_rope(b, o.rope_dim));
  if (o.rope.dim != o.rope_dim) {
    return error(Code::kUnsupported, json.where("partial_rotary_factor"), " leaves ", o.rope.dim, " of the ",
                 o.rope_dim, " dimensions of qk_rope_head_dim to rotate; want all");
  }
  CADRE_ASSIGN(o.scale, score_scale(json, o.nope_dim + o.rope_dim));
  // What transformers writes down of the sizes above.
  const std::int64_t width = o.nope_dim + o.rope_dim;
  CADRE_ASSIGN(const std::int64_t said, json.get_int_or("qk_head_dim", width, 1, kMaxConfigSize));
  if (said != width) {
    return error(Code::kInvalidFile, json.where("qk_head_dim"), " is ", said, ", want ", width,
                 ", qk_nope_head_dim and qk_rope_head_dim together");
  }
  b.ignored_fields.emplace_back("head_dim");
  return o;
}

}  // namespace

Result<DeepseekModel> read_deepseek(Builder& b, const DeepseekDefaults& defaults) {
  const ModelConfig& c = b.config;
  const Json& json = c.json;
  DeepseekModel m;
  CADRE_ASSIGN(m.layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(m.first_dense, json.get_int_or("first_k_dense_replace", defaults.first_dense, 0, kMaxLayers));
  CADRE_ASSIGN(m.dense_size, config_int(json, {"intermediate_size"}));
  CADRE_ASSIGN(const std::int64_t every, json.get_int_or("moe_layer_freq", 1, 1, kMaxLayers));
  if (every != 1) {
    return error(Code::kUnsupported, json.where("moe_layer_freq"), " is ", every,
                 ", want 1: every layer after the dense ones is a MoE layer");
  }
  CADRE_ASSIGN(m.attention, read_mla(b));

  LayerSpec& spec = m.experts;
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  CADRE_ASSIGN(const std::int64_t experts,
               config_int(json, {"n_routed_experts", "num_experts", "num_local_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"num_experts_per_tok"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"moe_intermediate_size"}));
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("n_shared_experts", defaults.shared_experts, 0, 1024));
  CADRE_ASSIGN(spec.routing.scale,
               config_float(json, "routed_scaling_factor", static_cast<double>(defaults.routed_scale), -1e30, 1e30));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.shared_experts = static_cast<int>(shared);
  spec.shared_intermediate = shared * spec.intermediate;
  return m;
}

Status read_expert_groups(const Json& json, LayerSpec& spec) {
  CADRE_ASSIGN(const std::int64_t groups, config_int(json, {"n_group"}, 1, spec.experts));
  CADRE_ASSIGN(const std::int64_t kept, config_int(json, {"topk_group"}, 1, spec.experts));
  spec.routing.groups = static_cast<int>(groups);
  spec.routing.topk_groups = static_cast<int>(kept);
  return {};
}

Status build_deepseek(Builder& b, Network& network, const DeepseekModel& m) {
  DenseFirst feed{.spec = m.experts,
                  .dense_size = m.dense_size,
                  .selection_bias = "gate.e_score_correction_bias",
                  .bias = m.mlp_bias};
  for (std::int64_t i = 0; i < m.layers; ++i) feed.sparse.push_back(i >= m.first_dense);
  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             MlaOptions attention = m.attention;
             attention.module = prefix + ".self_attn";
             return make_mla(b, attention);
           },
       .feed_forward = [&](int layer,
                           const std::string& prefix) { return make_dense_first(b, feed, layer, prefix + ".mlp"); },
       .layers = m.layers});
}

}  // namespace cadre
