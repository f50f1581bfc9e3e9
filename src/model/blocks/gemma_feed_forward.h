// Gemma 4's feed-forward layer: a dense MLP, and routed experts beside it where the model has them. The dense part sees
// the stream under pre_feedforward_layernorm; router and experts see the stream itself, each under its own norm:
// post_1(mlp(pre(x))) + post_2(moe(x)).
#pragma once

#include <optional>

#include "model/blocks/moe_mixer.h"

namespace cadre {

struct GemmaFeedForwardOptions {
  std::string prefix;  // "model.layers.0"
  MlpOptions dense;
  std::optional<MoeOptions> moe;
  float norm_eps = 1e-6f;
};

// For a Block without a norm before it.
Result<std::unique_ptr<Mixer>> make_gemma_feed_forward(Builder& builder, const GemmaFeedForwardOptions& options);

}  // namespace cadre
