// View: where a tensor lies and how it is laid out. It owns nothing, and only ops read through it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"
#include "base/result.h"

namespace cadre {

// Up to four dimensions, strides in elements. Views are passed by value. `data` belongs to a Device (or is mapped file
// memory on the host) and is dereferenced only inside ops and experts.
struct View {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> stride{};

  View() = default;
  // A dense row-major view.
  View(void* at, DType type, std::initializer_list<std::int64_t> dims);

  bool defined() const { return rank > 0; }
  std::int64_t dim(int i) const { return shape[static_cast<std::size_t>(i)]; }
  std::int64_t step(int i) const { return stride[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * dtype_bits(dtype) / 8; }
  bool dense() const;

  // Elements [begin, end) of dimension i.
  View slice(int i, std::int64_t begin, std::int64_t end) const;
  // The sub-tensor at index `at` of the first dimension.
  View at(std::int64_t index) const;
  // The first two dimensions exchanged (rank 2).
  View transposed() const;
  // The same elements under another dense shape; only of a dense view.
  View reshaped(std::initializer_list<std::int64_t> dims) const;
  // [n, heads * dim] seen as [n, heads, dim], keeping the row stride.
  View split_last(std::int64_t parts) const;

  // "bfloat16 [128, 64]"
  std::string describe() const;
};

// Typed access for op implementations.
template <class T>
T* ptr(const View& v) {
  return static_cast<T*>(v.data);
}

}  // namespace cadre
