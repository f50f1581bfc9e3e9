#include <cstring>

#include "moe/experts/cpu_vector/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cadre::cpu_vector {

#if defined(__x86_64__)
namespace {

#define CADRE_ISA __attribute__((target("avx512f")))
constexpr int kLanes = 16;
constexpr int kAccumulators = 24;
constexpr int kIsaRows = 12;
using Vec = float __attribute__((vector_size(kLanes * 4)));

struct Isa {
  CADRE_ISA static inline __attribute__((always_inline)) Vec broadcast(float x) { return (Vec)_mm512_set1_ps(x); }
  CADRE_ISA static inline __attribute__((always_inline)) Vec fma(const Vec& a, const Vec& b, const Vec& c) {
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  }
};

#include "moe/experts/cpu_vector/kernels_body.h"

}  // namespace

const VectorKernels* avx512_kernels() {
  static constexpr VectorKernels kKernels = CADRE_VECTOR_KERNELS("avx512");
  return __builtin_cpu_supports("avx512f") ? &kKernels : nullptr;
}
#else
const VectorKernels* avx512_kernels() { return nullptr; }
#endif

}  // namespace cadre::cpu_vector
