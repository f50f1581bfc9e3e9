// FlexOlmo (arXiv:2507.07024): OLMo 2's norms, which come after attention and experts and not before; queries and keys
// normalised over all heads together; softmax over all experts, then top-k.
#include "base/result.h"
#include "model/families/dense_first.h"

namespace cadre {

Status build_flex_olmo(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  attention.out_bias = attention.qkv_bias;
  attention.qk_norm = AttentionOptions::QkNorm::kWhole;
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  attention.rope = &rope;
  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(b.config, "num_experts", "intermediate_size"));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", false));

  CADRE_TRY(b.embedding(network.embedding, "model.embed_tokens", b.config.vocab, b.config.hidden));
  for (int i = 0; i < layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i), mlp = prefix + ".mlp";
    Block attend, feed;
    attention.module = prefix + ".self_attn";
    CADRE_ASSIGN(attend.mixer, make_attention(b, attention));
    CADRE_ASSIGN(attend.after, b.norm(prefix + ".post_attention_layernorm", spec.hidden, attention.norm_eps));
    CADRE_ASSIGN(
        feed.mixer,
        make_moe(b,
                 {.layer = i,
                  .spec = spec,
                  .router = mlp + ".gate",
                  .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"}}));
    CADRE_ASSIGN(feed.after, b.norm(prefix + ".post_feedforward_layernorm", spec.hidden, attention.norm_eps));
    network.blocks.push_back(std::move(attend));
    network.blocks.push_back(std::move(feed));
  }
  CADRE_ASSIGN(network.final_norm, b.norm("model.norm", spec.hidden, attention.norm_eps));
  b.targets.layers = static_cast<int>(layers);
  return b.lm_head(network.lm_head, network.embedding);
}

}  // namespace cadre
