// dots.llm1 (arXiv:2506.05767): queries and keys normalised by head; layers from max_window_layers on attend within a
// window; dense first layers; DeepSeek-V3's routing, here with one group.
#include "base/result.h"
#include "model/families/dense_first.h"

namespace cadre {

Status build_dots1(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  attention.out_bias = attention.qkv_bias;
  attention.qk_norm = AttentionOptions::QkNorm::kPerHead;
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  attention.rope = &rope;
  const bool unsaid = json.find("sliding_window") == nullptr;
  CADRE_ASSIGN(const std::int64_t window, unsaid ? Result<std::int64_t>(4096) : read_sliding_window(json));
  CADRE_ASSIGN(const std::int64_t window_from, json.get_int_or("max_window_layers", 62, 0, kMaxConfigSize));
  CADRE_ASSIGN(const std::vector<bool> slides,
               read_sliding_layers(json, layers, [&](std::int64_t layer) { return layer >= window_from; }));
  CADRE_TRY(want_string(json, "scoring_func", {"sigmoid", "noaux_tc"}));
  CADRE_TRY(want_string(json, "topk_method", {"noaux_tc"}));
  CADRE_TRY(want_int(json, "moe_layer_freq", 1));
  CADRE_ASSIGN(const DenseFirst experts, read_sigmoid_dense_first(b.config, layers, false, 0, 0));

  return build_decoder(
      b, network,
      {.attention =
           [&](int layer, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             attention.window = slides[static_cast<std::size_t>(layer)] ? window : 0;
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer,
                           const std::string& prefix) { return make_dense_first(b, experts, layer, prefix + ".mlp"); },
       .layers = layers});
}

}  // namespace cadre
