// Qwen3-MoE (arXiv:2505.09388): attention with normalised queries and keys; softmax over all experts, then top-k,
// renormalised unless the config says otherwise; no shared expert. Some layers may be dense.
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"
#include "model/families/want.h"

namespace cadre {

Status build_qwen3_moe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(json, layers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(const bool bias, json.get_bool_or("attention_bias", false));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  CADRE_ASSIGN(attention.window, read_switched_window(json));
  attention.qkv_bias = attention.out_bias = bias;
  attention.qk_norm = AttentionOptions::QkNorm::kPerHead;
  attention.rope = &rope;

  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(b.config, "num_experts", "moe_intermediate_size"));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", false));
  CADRE_TRY(want_bool(json, "qkv_bias", false));
  CADRE_TRY(want_bool(json, "use_qk_norm", true));
  CADRE_TRY(want_int(json, "shared_expert_intermediate_size", 0));
  b.ignored_fields.emplace_back("max_window_layers");  // a window is every layer's
  CADRE_ASSIGN(const std::int64_t dense_size, json.get_int_or("intermediate_size", 1, 1, kMaxConfigSize));

  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
         const std::string mlp = prefix + ".mlp";
         if (!sparse[static_cast<std::size_t>(layer)]) {
           return make_mlp(
               b, {.module = mlp, .hidden = spec.hidden, .intermediate = dense_size, .activation = spec.activation});
         }
         return make_moe(
             b, {.layer = layer,
                 .spec = spec,
                 .router = mlp + ".gate",
                 .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"}});
       },
       .layers = layers});
}

}  // namespace cadre
