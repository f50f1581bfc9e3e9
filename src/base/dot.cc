#include "base/dot.h"

#include <bit>
#include <cstring>

#include "base/float16.h"

namespace cadre {
namespace {

// 32 partial sums: two AVX-512 or four AVX2 registers, enough chains to hide the latency of an add. The number is part
// of the result's definition, so it is the same everywhere; narrower machines use more registers for it.
constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
using Halves = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));

inline __attribute__((always_inline)) void load(const float* p, Floats& out) { std::memcpy(&out, p, sizeof out); }
inline __attribute__((always_inline)) void load(const Bf16* p, Floats& out) {
  Halves halves;
  std::memcpy(&halves, p, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&out, &words, sizeof out);
}
inline __attribute__((always_inline)) void load(const F16* p, Floats& out) {
  float values[kLanes];
  for (int i = 0; i < kLanes; ++i) values[i] = to_float(p[i]);
  std::memcpy(&out, values, sizeof out);
}

template <class T>
inline __attribute__((always_inline)) float dot_body(const T* w, const float* x, std::int64_t n) {
  Floats sum0{}, sum1{};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    Floats a, b;
    load(w + i, a);
    load(x + i, b);
    sum0 += a * b;
    load(w + i + kLanes, a);
    load(x + i + kLanes, b);
    sum1 += a * b;
  }
  if (i + kLanes <= n) {
    Floats a, b;
    load(w + i, a);
    load(x + i, b);
    sum0 += a * b;
    i += kLanes;
  }
  const Floats sum = sum0 + sum1;
  float lanes[kLanes];
  std::memcpy(lanes, &sum, sizeof lanes);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  float total = lanes[0];
  for (; i < n; ++i) total += to_float(w[i]) * x[i];
  return total;
}

template <class T>
inline __attribute__((always_inline)) void axpy_body(float a, const T* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += a * to_float(x[i]);
}

// The same body for each instruction set. Nothing inside may be fused or reordered (-ffp-contract=off), so all of them
// compute the same bits.
#if defined(__x86_64__)
#define CADRE_TARGETS(F) \
  F(base, ) F(avx2, __attribute__((target("avx2")))) F(avx512, __attribute__((target("avx512f"))))
#else
#define CADRE_TARGETS(F) F(base, )
#endif
#define CADRE_DEFINE(name, attribute)                                                 \
  attribute float dot_f32_##name(const void* w, const float* x, std::int64_t n) {     \
    return dot_body(static_cast<const float*>(w), x, n);                              \
  }                                                                                   \
  attribute float dot_bf16_##name(const void* w, const float* x, std::int64_t n) {    \
    return dot_body(static_cast<const Bf16*>(w), x, n);                               \
  }                                                                                   \
  attribute float dot_f16_##name(const void* w, const float* x, std::int64_t n) {     \
    return dot_body(static_cast<const F16*>(w), x, n);                                \
  }                                                                                   \
  attribute void axpy_f32_##name(float a, const void* x, float* y, std::int64_t n) {  \
    axpy_body(a, static_cast<const float*>(x), y, n);                                 \
  }                                                                                   \
  attribute void axpy_bf16_##name(float a, const void* x, float* y, std::int64_t n) { \
    axpy_body(a, static_cast<const Bf16*>(x), y, n);                                  \
  }                                                                                   \
  attribute void axpy_f16_##name(float a, const void* x, float* y, std::int64_t n) {  \
    axpy_body(a, static_cast<const F16*>(x), y, n);                                   \
  }
CADRE_TARGETS(CADRE_DEFINE)

struct Kernels {
  float (*dot_f32)(const void*, const float*, std::int64_t);
  float (*dot_bf16)(const void*, const float*, std::int64_t);
  float (*dot_f16)(const void*, const float*, std::int64_t);
  void (*axpy_f32)(float, const void*, float*, std::int64_t);
  void (*axpy_bf16)(float, const void*, float*, std::int64_t);
  void (*axpy_f16)(float, const void*, float*, std::int64_t);
};
#define CADRE_KERNELS(name) \
  Kernels { dot_f32_##name, dot_bf16_##name, dot_f16_##name, axpy_f32_##name, axpy_bf16_##name, axpy_f16_##name }

const Kernels& kernels() {
  static const Kernels chosen = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return CADRE_KERNELS(avx512);
    if (__builtin_cpu_supports("avx2")) return CADRE_KERNELS(avx2);
#endif
    return CADRE_KERNELS(base);
  }();
  return chosen;
}

}  // namespace

float dot(const void* w, DType dtype, const float* x, std::int64_t n) {
  switch (dtype) {
    case DType::kBF16:
      return kernels().dot_bf16(w, x, n);
    case DType::kF16:
      return kernels().dot_f16(w, x, n);
    default:
      return kernels().dot_f32(w, x, n);
  }
}

void axpy(float a, const void* x, DType dtype, float* y, std::int64_t n) {
  switch (dtype) {
    case DType::kBF16:
      return kernels().axpy_bf16(a, x, y, n);
    case DType::kF16:
      return kernels().axpy_f16(a, x, y, n);
    default:
      return kernels().axpy_f32(a, x, y, n);
  }
}

float element(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::kBF16:
      return to_float(static_cast<const Bf16*>(data)[i]);
    case DType::kF16:
      return to_float(static_cast<const F16*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

}  // namespace cadre
