#include <algorithm>

#include "tensor/exec.h"

namespace cadre {

View Arena::alloc(DType dtype, std::initializer_list<std::int64_t> dims) {
  View v(nullptr, dtype, dims);
  const std::size_t bytes = (static_cast<std::size_t>(v.bytes()) + 63) / 64 * 64;
  if (!measuring_) {
    CADRE_CHECK(used_ + bytes <= memory_.bytes(), "the arena is smaller than was measured");
    v.data = static_cast<std::byte*>(memory_.data()) + used_;
  }
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return v;
}

}  // namespace cadre
