// A dense feed-forward layer: down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate.
#pragma once

#include "model/builder.h"

namespace cadre {

struct MlpOptions {
  std::string module;  // "model.layers.0.mlp"
  std::int64_t hidden = 0, intermediate = 0;
  ActivationSpec activation;
  bool bias = false;
  // Names within the module. With `gate_up` one projection gives what the gate gives, then what up gives (Granite).
  std::string gate = "gate_proj", up = "up_proj", gate_up, down = "down_proj";
};

Result<std::unique_ptr<Mixer>> make_mlp(Builder& builder, const MlpOptions& options);

}  // namespace cadre
