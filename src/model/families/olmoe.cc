// OLMoE (arXiv:2409.02060): queries and keys normalised over all heads together, optionally clipped; softmax over all
// experts, then top-k, renormalised only where the config asks.
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"

namespace cadre {

Status build_olmoe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(const bool bias, json.get_bool_or("attention_bias", false));
  CADRE_ASSIGN(attention.clip_qkv, config_float(json, "clip_qkv", 0, 0, 1e30));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  CADRE_ASSIGN(attention.norm_eps, config_epsilon(json, "rms_norm_eps", 1e-5));
  attention.qkv_bias = attention.out_bias = bias;
  attention.qk_norm = AttentionOptions::QkNorm::kWhole;
  attention.rope = &rope;

  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(b.config, "num_experts", "intermediate_size"));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", false));

  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             return make_attention(b, attention);
           },
       .feed_forward =
           [&](int layer, const std::string& prefix) {
             const std::string mlp = prefix + ".mlp";
             return make_moe(
                 b,
                 {.layer = layer,
                  .spec = spec,
                  .router = mlp + ".gate",
                  .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"}});
           },
       .layers = layers});
}

}  // namespace cadre
