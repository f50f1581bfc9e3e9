// Dot products for the reference backend: float32 products and sums in one fixed order, so every processor and every
// compiler gives the same bits.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace cadre {

// sum of w[i] * x[i] over n elements, w of dtype F32, BF16 or F16 and contiguous.
float dot(const void* w, DType dtype, const float* x, std::int64_t n);

// y[i] += a * x[i], x of dtype F32, BF16 or F16.
void axpy(float a, const void* x, DType dtype, float* y, std::int64_t n);

// Element i of a contiguous array of dtype F32, BF16 or F16.
float element(const void* data, DType dtype, std::int64_t i);

}  // namespace cadre
