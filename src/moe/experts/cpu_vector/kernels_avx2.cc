#include <cstring>

#include "moe/experts/cpu_vector/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cadre::cpu_vector {

#if defined(__x86_64__)
namespace {

#define CADRE_ISA __attribute__((target("avx2,fma")))
constexpr int kLanes = 8;
constexpr int kAccumulators = 12;
constexpr int kIsaRows = 6;
using Vec = float __attribute__((vector_size(kLanes * 4)));

struct Isa {
  CADRE_ISA static inline __attribute__((always_inline)) Vec broadcast(float x) { return (Vec)_mm256_set1_ps(x); }
  CADRE_ISA static inline __attribute__((always_inline)) Vec fma(const Vec& a, const Vec& b, const Vec& c) {
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  }
};

#include "moe/experts/cpu_vector/kernels_body.h"

}  // namespace

const VectorKernels* avx2_kernels() {
  static constexpr VectorKernels kKernels = CADRE_VECTOR_KERNELS("avx2");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kKernels : nullptr;
}
#else
const VectorKernels* avx2_kernels() { return nullptr; }
#endif

}  // namespace cadre::cpu_vector
