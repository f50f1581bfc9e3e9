// Mixtral (arXiv:2401.04088): the softmax of the top-k logits, which equals the renormalised top-k of the softmax over
// all experts. Files name the layer block_sparse_moe and its projections w1 (gate), w3 (up), w2 (down); transformers 5
// and the adapters it writes say mlp.
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"
#include "model/families/want.h"

namespace cadre {

Status build_mixtral(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  CADRE_ASSIGN(attention.window, read_sliding_window(json));
  attention.rope = &rope;

  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(b.config, "num_local_experts", "intermediate_size"));
  spec.routing.renormalize = true;
  CADRE_TRY(want_bool(json, "norm_topk_prob", true));
  b.ignored_fields.emplace_back("router_jitter_noise");  // of training

  const std::string layer_name = sparse_layer_name(b, "experts.gate_up_proj");

  return build_decoder(b, network,
                       {.attention =
                            [&](int, const std::string& prefix) {
                              attention.module = prefix + ".self_attn";
                              return make_attention(b, attention);
                            },
                        .feed_forward =
                            [&](int layer, const std::string& prefix) {
                              const std::string mlp = prefix + "." + layer_name;
                              return make_moe(
                                  b, {.layer = layer,
                                      .spec = spec,
                                      .router = mlp + ".gate",
                                      .experts = {.module = mlp + ".experts", .gate = "w1", .up = "w3", .down = "w2"}});
                            },
                        .layers = layers});
}

}  // namespace cadre
