// What happens to an adapter's numbers where a backend computes with BF16 ones.
#pragma once

#include <span>

#include "lora/canonical.h"

namespace cadre {

// BF16 keeps 8 bits and rounds to the nearest, so it changes a number by at most this share of it, unless the number is
// below BF16's range.
inline constexpr double kBf16Rounding = 0x1p-8;

struct Rounding {
  double a = 0, b = 0;  // the largest relative change of an element; b is 0 for a replacement
  double largest() const { return a > b ? a : b; }
};

// Of an F32, F16 or BF16 matrix; 1 for an element that becomes 0 or infinite.
double bf16_rounding(const View& matrix);
// Over all terms.
Rounding bf16_rounding(std::span<const LowRank> terms);

}  // namespace cadre
