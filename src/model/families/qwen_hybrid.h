// What Qwen3-Next and Qwen3.5-MoE share; they differ in names and defaults only.
#pragma once

#include "model/families/family.h"

namespace cadre {

struct QwenHybrid {
  bool grouped_projections = false;     // of the delta net, see DeltaNetOptions
  bool all_sparse = false;              // no dense layer and no choice of renormalisation
  std::int64_t top_k = 0, experts = 0;  // where the config leaves them out
};

Status build_qwen_hybrid(Builder& builder, Network& network, const QwenHybrid& family);

}  // namespace cadre
