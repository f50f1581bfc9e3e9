// A dense feed-forward layer: down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate.
#pragma once

#include "model/builder.h"

namespace cadre {

struct MlpOptions {
  std::string module;  // "model.layers.0.mlp"; projections are gate_proj, up_proj and down_proj
  std::int64_t hidden = 0, intermediate = 0;
  ActivationSpec activation;
  bool bias = false;
};

Result<std::unique_ptr<Mixer>> make_mlp(Builder& builder, const MlpOptions& options);

}  // namespace cadre
