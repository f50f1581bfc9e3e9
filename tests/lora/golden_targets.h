// What the golden checkpoints offer an adapter, derived from the names and shapes of their tensors alone.
#pragma once

#include <string>

#include "lora/canonical.h"

namespace cadre {

// `model` is a folder of the goldens, e.g. "qwen3_moe".
AdapterTargets golden_targets(const std::string& model);

// A small gated model made up here: one layer with attention q_proj [8, 8], a router and `experts` experts, lm_head and
// embedding with 16 tokens.
AdapterTargets small_targets(int experts = 3, std::int64_t width = 8, std::int64_t intermediate = 6, bool gated = true);

}  // namespace cadre
