// scalar_silu: SiLU-gated experts with BF16 weights, one multiplication after another in float32.
#pragma once

#include "moe/experts.h"

namespace scalar {

// For EngineOptions::backends and PlanOptions::backends.
const cadre::MoeBackend& backend();

}  // namespace scalar
