#include "lora/adapter_rounding.h"

#include <algorithm>
#include <cmath>

#include "base/float16.h"

namespace cadre {
namespace {

template <class T>
double largest_change(const View& matrix) {
  const T* data = ptr<const T>(matrix);
  double largest = 0;
  for (std::int64_t i = 0; i < matrix.dim(0); ++i) {
    for (std::int64_t k = 0; k < matrix.dim(1); ++k) {
      const float x = to_float(data[i * matrix.step(0) + k * matrix.step(1)]);
      if (x == 0 || !std::isfinite(x)) continue;
      const double change = std::abs(double(to_float(to_bf16(x))) - double(x)) / std::abs(double(x));
      largest = std::max(largest, std::min(change, 1.0));
    }
  }
  return largest;
}

}  // namespace

double bf16_rounding(const View& matrix) {
  if (matrix.dtype == DType::kF32) return largest_change<float>(matrix);
  if (matrix.dtype == DType::kF16) return largest_change<F16>(matrix);
  return 0;
}

Rounding bf16_rounding(std::span<const LowRank> terms) {
  Rounding rounding;
  const void* last = nullptr;
  for (const LowRank& term : terms) {
    if (term.rank() == 0) continue;
    if (term.a.data != last) rounding.a = std::max(rounding.a, bf16_rounding(term.a));
    last = term.a.data;
    rounding.b = std::max(rounding.b, bf16_rounding(term.b));
  }
  return rounding;
}

}  // namespace cadre
