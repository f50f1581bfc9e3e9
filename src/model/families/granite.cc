#include "model/families/granite.h"

#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/want.h"

namespace cadre {

Result<Granite> read_granite(const ModelConfig& c, Network& network, const GraniteKind& kind) {
  const Json& json = c.json;
  Granite g;
  CADRE_ASSIGN(g.layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(g.attention, read_attention(c));
  CADRE_ASSIGN(g.attention.qkv_bias, json.get_bool_or("attention_bias", false));
  g.attention.out_bias = g.attention.qkv_bias;
  // The scores are multiplied by this and by nothing else.
  CADRE_ASSIGN(g.attention.scale, config_float(json, "attention_multiplier", 1.0, 1e-30, 1e30));
  CADRE_ASSIGN(g.residual_scale, config_float(json, "residual_multiplier", 1.0, -1e30, 1e30));
  CADRE_ASSIGN(network.embedding_scale, config_float(json, "embedding_multiplier", 1.0, -1e30, 1e30));
  CADRE_ASSIGN(const float logits, config_float(json, "logits_scaling", 1.0, 1e-30, 1e30));
  network.logit_scale = 1.0f / logits;

  CADRE_TRY(want_string(json, "normalization_function", {"rmsnorm"}));

  LayerSpec& spec = g.spec;
  spec.hidden = c.hidden;
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  CADRE_ASSIGN(const std::int64_t experts,
               config_int(json, {"num_local_experts", "num_experts"}, kind.dense_allowed ? 0 : 1, kMaxExperts));
  spec.experts = static_cast<int>(experts);
  if (experts > 0) {
    CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"num_experts_per_tok"}));
    CADRE_ASSIGN(spec.intermediate, config_int(json, {"intermediate_size"}));
    spec.top_k = static_cast<int>(top_k);
    spec.routing.kind = Routing::kTopKSoftmax;
  }
  if (kind.shared) {
    CADRE_ASSIGN(spec.shared_intermediate, json.get_int_or("shared_intermediate_size", 0, 0, kMaxConfigSize / 2));
    spec.shared_experts = spec.shared_intermediate > 0 ? 1 : 0;
  }
  if (experts == 0 && spec.shared_experts == 0) {
    return error(Code::kInvalidFile, json.where("num_local_experts"),
                 " is 0 and there is no shared_intermediate_size, want one of them");
  }
  return g;
}

Result<std::unique_ptr<Mixer>> make_granite_feed_forward(Builder& b, const Granite& granite, int layer,
                                                         const std::string& prefix) {
  const LayerSpec& spec = granite.spec;
  const MlpOptions shared{.module = prefix + ".shared_mlp",
                          .hidden = spec.hidden,
                          .intermediate = spec.shared_intermediate,
                          .activation = spec.activation,
                          .gate_up = "input_linear",
                          .down = "output_linear"};
  if (spec.experts == 0) return make_mlp(b, shared);
  const std::string moe = prefix + ".block_sparse_moe";
  const bool published = b.loader.has(moe + ".input_linear.weight");
  const std::string plain = moe + ".router", layered = plain + ".layer";
  MoeOptions o{.layer = layer, .spec = spec, .router = published ? layered : plain};
  o.experts = {.module = moe + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
  if (published) {
    o.experts.module = moe;
    o.experts.stacked_up = "input_linear.weight";
    o.experts.stacked_down = "output_linear.weight";
  }
  if (spec.shared_experts > 0) o.shared = shared;
  CADRE_ASSIGN(std::unique_ptr<Mixer> mixer, make_moe(b, o));
  // Adapters name them as transformers 5 does, whatever the file says.
  ExpertsTarget& target = b.targets.experts.back();
  target.module = moe + ".experts";
  target.stacked_up_name = "gate_up_proj";
  target.stacked_down_name = "down_proj";
  b.targets.prefix_aliases.emplace_back(published ? plain : layered, o.router);
  return mixer;
}

}  // namespace cadre
