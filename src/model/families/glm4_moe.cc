// GLM-4.5, 4.6 and 4.7 (arXiv:2508.06471): biased query, key and value projections, optionally normalised by head, half
// of each head rotated; dense first layers; DeepSeek-V3's routing, here with one group.
#include "base/result.h"
#include "model/families/dense_first.h"

namespace cadre {

Status build_glm4_moe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  CADRE_ASSIGN(const bool qk_norm, json.get_bool_or("use_qk_norm", false));
  if (qk_norm) attention.qk_norm = AttentionOptions::QkNorm::kPerHead;
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim, 0.5));
  attention.rope = &rope;
  CADRE_ASSIGN(const DenseFirst experts, read_sigmoid_dense_first(b.config, layers, true, 1, 1));
  CADRE_TRY(want_string(json, "scoring_func", {"sigmoid"}));
  CADRE_TRY(want_string(json, "topk_method", {"noaux_tc"}));
  CADRE_TRY(ignore_draft_layers(b, layers));

  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer,
                           const std::string& prefix) { return make_dense_first(b, experts, layer, prefix + ".mlp"); },
       .layers = layers});
}

}  // namespace cadre
