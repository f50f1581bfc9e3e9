// gpt-oss (20b and 120b): biases everywhere, attention sinks, sliding and full attention in turn, YaRN without rounding
// of its bounds; the softmax of the top-k logits of a biased router. Experts lie transposed, [E, in, out], with gate
// and up interleaved, and their activation is clamped: min(g, 7) * sigmoid(1.702 g) * (clamp(u, -7, 7) + 1).
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"

namespace cadre {
namespace {

Result<LayerSpec> read_experts(const ModelConfig& c) {
  const Json& json = c.json;
  LayerSpec spec;
  CADRE_ASSIGN(const std::int64_t experts, config_int(json, {"num_local_experts", "num_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"num_experts_per_tok", "experts_per_token"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"intermediate_size"}));
  CADRE_ASSIGN(const Activation activation, config_activation(json, "hidden_act", "silu"));
  if (activation != Activation::kSilu) {
    return error(Code::kUnsupported, json.where("hidden_act"), ": gpt_oss has one activation of its own, want silu");
  }
  spec.activation = {.kind = Activation::kSwigluOai, .gated = true, .alpha = 1.702f, .beta = 1.0f};
  CADRE_ASSIGN(spec.activation.limit, config_float(json, "swiglu_limit", 7.0, 1e-6, 1e30));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.expert_bias = spec.router_bias = true;
  spec.interleaved_gate_up = true;
  spec.routing.kind = Routing::kTopKSoftmax;
  return spec;
}

}  // namespace

Status build_gpt_oss(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  // Every second one, from the first, where the config does not say.
  CADRE_ASSIGN(const std::vector<bool> sliding,
               read_sliding_layers(json, layers, [](std::int64_t layer) { return layer % 2 == 0; }));
  CADRE_ASSIGN(const std::int64_t window, read_sliding_window(json));
  CADRE_TRY(json.get_double("rms_norm_eps").status());  // the default of other families is another
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", true));
  attention.out_bias = attention.qkv_bias;
  attention.sinks = true;
  // Without a word on it the model would be YaRN all the same, and a plain rotation wrong.
  if (!json.has("rope_parameters")) CADRE_TRY(json.get_object("rope_scaling").status());
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  attention.rope = &rope;
  CADRE_ASSIGN(const LayerSpec spec, read_experts(b.config));
  b.ignored_fields.emplace_back("initial_context_length");  // the rotation's original_max_position_embeddings

  return build_decoder(b, network,
                       {.attention =
                            [&](int layer, const std::string& prefix) {
                              attention.module = prefix + ".self_attn";
                              attention.window = sliding[static_cast<std::size_t>(layer)] ? window : 0;
                              return make_attention(b, attention);
                            },
                        .feed_forward =
                            [&](int layer, const std::string& prefix) {
                              const std::string mlp = prefix + ".mlp";
                              return make_moe(b, {.layer = layer,
                                                  .spec = spec,
                                                  .router = mlp + ".router",
                                                  .experts = {.module = mlp + ".experts",
                                                              .gate = "gate_proj",
                                                              .up = "up_proj",
                                                              .down = "down_proj",
                                                              .interleaved = true,
                                                              .transposed = true}});
                            },
                        .layers = layers});
}

}  // namespace cadre
