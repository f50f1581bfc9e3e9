// ExpertWeights over the layouts in which checkpoints store routed experts.
#pragma once

#include "model/weights.h"
#include "moe/experts.h"

namespace cadre {

// Where one layer's experts lie. Names are of the file.
struct ExpertNames {
  std::string module;          // "model.layers.0.mlp.experts"
  std::string gate, up, down;  // "gate_proj" or "w1", ...; gate empty where not gated
  std::string stacked_up = "gate_up_proj", stacked_down = "down_proj";
  bool interleaved = false;  // stacked gate and up rows alternate
  bool transposed = false;   // stacked tensors are [E, in, out]
};

struct OpenedExperts {
  std::unique_ptr<ExpertWeights> weights;
  DType dtype = DType::kBF16;  // of the matrices, as the backends get them
};

// Stacked (`module.gate_up_proj` [E, 2I, W] and `module.down_proj` [E, W, I], with biases `module.gate_up_proj_bias`
// [E, 2I] and `module.down_proj_bias` [E, W]) where the checkpoint has that, otherwise per expert
// (`module.3.up_proj.weight`). Checks every tensor now; reads none: quantised ones become BF16, an expert's matrix at a
// time, when they are asked for, and are given back with drop_pages. MXFP4 is never transposed.
Result<OpenedExperts> open_expert_weights(WeightLoader& loader, const ExpertNames& names, const LayerSpec& spec);

}  // namespace cadre
