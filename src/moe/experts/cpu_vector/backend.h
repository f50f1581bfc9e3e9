#pragma once

#include "moe/experts.h"

namespace cadre {

// BF16 weights repacked into blocks of 32 output columns, float32 activations and sums, vector code for AVX-512,
// AVX2 with FMA, and any other processor.
const MoeBackend& cpu_vector_backend();

}  // namespace cadre
