#pragma once

#include "moe/experts.h"

namespace cadre {

// Float32 arithmetic in a fixed order, on any CPU, for every spec the model families need. The yardstick.
const MoeBackend& cpu_reference_backend();

}  // namespace cadre
