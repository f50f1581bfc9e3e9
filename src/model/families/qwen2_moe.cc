// Qwen2-MoE (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B): biased query, key and value projections; softmax over all experts,
// then top-k, not renormalised; one shared expert scaled by the sigmoid of a gate of its own.
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"

namespace cadre {

Status build_qwen2_moe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(json, layers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("qkv_bias", true));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  CADRE_ASSIGN(const std::int64_t window, read_switched_window(json));
  // Where the config does not say, every second layer, from the first, of those before max_window_layers.
  CADRE_ASSIGN(const std::int64_t window_until, json.get_int_or("max_window_layers", 28, 0, kMaxConfigSize));
  CADRE_ASSIGN(const std::vector<bool> slides, read_sliding_layers(json, layers, [&](std::int64_t layer) {
                 return layer % 2 == 0 && layer < window_until;
               }));
  attention.rope = &rope;

  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(b.config, "num_experts", "moe_intermediate_size"));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", false));
  CADRE_ASSIGN(spec.shared_intermediate, config_int(json, {"shared_expert_intermediate_size"}));
  spec.shared_experts = 1;
  CADRE_ASSIGN(const std::int64_t dense_size, json.get_int_or("intermediate_size", 1, 1, kMaxConfigSize));

  return build_decoder(
      b, network,
      {.attention =
           [&](int layer, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             attention.window = slides[static_cast<std::size_t>(layer)] ? window : 0;
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
         const std::string mlp = prefix + ".mlp";
         const MlpOptions dense{
             .module = mlp, .hidden = spec.hidden, .intermediate = dense_size, .activation = spec.activation};
         if (!sparse[static_cast<std::size_t>(layer)]) return make_mlp(b, dense);
         MlpOptions shared = dense;
         shared.module = mlp + ".shared_expert";
         shared.intermediate = spec.shared_intermediate;
         return make_moe(
             b, {.layer = layer,
                 .spec = spec,
                 .router = mlp + ".gate",
                 .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"},
                 .shared = shared,
                 .shared_gate = mlp + ".shared_expert_gate"});
       },
       .layers = layers});
}

}  // namespace cadre
