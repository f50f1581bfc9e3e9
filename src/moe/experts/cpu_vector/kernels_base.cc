#include <cstring>

#include "moe/experts/cpu_vector/kernels.h"

namespace cadre::cpu_vector {
namespace {

// What every processor of the architecture has: 128-bit vectors, no fused multiply-add on x86-64.
#define CADRE_ISA
constexpr int kLanes = 4;
constexpr int kAccumulators = 12;
constexpr int kIsaRows = 6;
using Vec = float __attribute__((vector_size(kLanes * 4)));

struct Isa {
  static inline __attribute__((always_inline)) Vec broadcast(float x) { return Vec{x, x, x, x}; }
  static inline __attribute__((always_inline)) Vec fma(const Vec& a, const Vec& b, const Vec& c) { return a * b + c; }
};

#include "moe/experts/cpu_vector/kernels_body.h"

}  // namespace

const VectorKernels* base_kernels() {
  static constexpr VectorKernels kKernels = CADRE_VECTOR_KERNELS("base");
  return &kKernels;
}

const VectorKernels& best_kernels() {
  for (const VectorKernels* kernels : {avx512_kernels(), avx2_kernels()}) {
    if (kernels != nullptr) return *kernels;
  }
  return *base_kernels();
}

}  // namespace cadre::cpu_vector
