// Granite-MoE (3.0 1b-a400m and 3b-a800m) and its variant with shared experts (granitemoeshared): see granite.h.
#include "base/result.h"
#include "model/families/granite.h"
#include "model/families/want.h"

namespace cadre {
namespace {

Status build(Builder& b, Network& network, const GraniteKind& kind) {
  CADRE_ASSIGN(Granite granite, read_granite(b.config, network, kind));
  CADRE_TRY(want_string(b.config.json, "position_embedding_type", {"rope"}));
  AttentionOptions& attention = granite.attention;
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  attention.rope = &rope;
  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer,
                           const std::string& prefix) { return make_granite_feed_forward(b, granite, layer, prefix); },
       .layers = granite.layers,
       .residual_scale = granite.residual_scale});
}

}  // namespace

Status build_granite_moe(Builder& b, Network& network) { return build(b, network, {}); }
Status build_granite_moe_shared(Builder& b, Network& network) { return build(b, network, {.shared = true}); }

}  // namespace cadre
