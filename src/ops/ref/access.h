// How reference ops check views (on the host) and read them (inside a launched closure only).
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "base/dot.h"
#include "base/float16.h"
#include "tensor/view.h"

namespace cadre {

// ---- checks: shapes and types only, never data ------------------------------------------------------------------

inline bool unit_last(const View& v) { return v.dim(v.rank - 1) <= 1 || v.step(v.rank - 1) == 1; }

inline bool has_shape(const View& v, std::initializer_list<std::int64_t> dims) {
  return v.rank == static_cast<int>(dims.size()) && std::equal(dims.begin(), dims.end(), v.shape.begin());
}

// Activations: float32, unit stride in the last dimension.
inline bool is_activation(const View& v, std::initializer_list<std::int64_t> dims) {
  return has_shape(v, dims) && v.dtype == DType::kF32 && unit_last(v);
}

inline bool is_weight(const View& v, std::initializer_list<std::int64_t> dims) {
  return has_shape(v, dims) && is_float_weight(v.dtype) && unit_last(v);
}

// Batch arrays may be views of a larger capacity; with nothing to read they may be undefined.
inline bool is_index(const View& v, std::int64_t count) {
  return count == 0 || (v.rank == 1 && v.dtype == DType::kI32 && v.dim(0) >= count);
}

// [T, D] seen as [T, 1, D].
inline View with_heads(View v) {
  if (v.rank != 2) return v;
  v.rank = 3;
  v.shape[2] = v.shape[1];
  v.stride[2] = v.stride[1];
  v.shape[1] = 1;
  v.stride[1] = v.shape[2];
  return v;
}

// ---- access: inside closures ------------------------------------------------------------------------------------

inline float* row(const View& v, std::int64_t t) { return ptr<float>(v) + t * v.step(0); }
inline float* row(const View& v, std::int64_t t, std::int64_t head) {
  return ptr<float>(v) + t * v.step(0) + head * v.step(1);
}
inline std::int64_t index_at(const View& v, std::int64_t i) { return ptr<const std::int32_t>(v)[i * v.step(0)]; }
inline const void* advance(const void* data, DType dtype, std::int64_t elements) {
  return static_cast<const std::byte*>(data) + elements * dtype_bits(dtype) / 8;
}
inline const void* weight_row(const View& w, std::int64_t n) { return advance(w.data, w.dtype, n * w.step(0)); }

// n contiguous elements as float32, exactly.
inline void widen(const void* from, DType dtype, std::int64_t n, float* to) {
  const auto copy = [&](const auto* values) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(values[i]);
  };
  if (dtype == DType::kBF16) return copy(static_cast<const Bf16*>(from));
  if (dtype == DType::kF16) return copy(static_cast<const F16*>(from));
  copy(static_cast<const float*>(from));
}

// Items for one piece of a parallel loop, at `cost` multiply-adds an item: a piece should outweigh its hand-over, a few
// microseconds.
inline std::int64_t grain_for(std::int64_t cost) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, cost));
}

}  // namespace cadre
