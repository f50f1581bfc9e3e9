// The inner loops, once for each instruction set. The numbers are the same kind everywhere: float32 products and sums,
// one chain over k for each output, cut at multiples of kChunk. With AVX2 and AVX-512 products and sums are fused,
// which the reference never does; without, they are not. So the bits depend on the processor, but on one processor
// never on how many rows or columns are computed together.
#pragma once

#include <cadre/moe_spec.h>

#include "moe/experts/cpu_vector/pack.h"

namespace cadre::cpu_vector {

inline constexpr int kBlock = 32;            // output columns of a packed block of weights
inline constexpr int kRankBlock = 16;        // of a packed block of an adapter's A
inline constexpr int kMaxRows = 12;          // most rows of a tile on any instruction set
inline constexpr std::int64_t kChunk = 256;  // k summed in registers before it is added to y

// y[b][r * y_step + n] = (or +=) sum over k of x[k * x_step + r] * w[b][k, n], for `blocks` (1 or 2) blocks.
struct Tile {
  const float* x = nullptr;  // [k, rows]
  std::int64_t x_step = 0;
  int rows = 0;        // 1 to VectorKernels::max_rows
  std::int64_t k = 0;  // even
  int blocks = 1;
  const std::byte* w[2] = {};
  float* y[2] = {};
  std::int64_t y_step = 0;
  bool add = false;
};

struct VectorKernels {
  const char* name;
  int max_rows;
  void (*bf16)(const Tile&);       // blocks of kBlock columns
  void (*f32)(const Tile&);        // the same, packed float32
  void (*rank_bf16)(const Tile&);  // blocks of kRankBlock columns
  void (*rank_f32)(const Tile&);
  // out[i] = act(gate[i]) * up[i], or act(up[i]) where gate is null; n is a multiple of 32. `out` may be an input.
  void (*activate)(Activation kind, const float* gate, const float* up, float* out, std::int64_t n);

  void multiply(PackedType type, const Tile& tile) const { (type == PackedType::kBF16 ? bf16 : f32)(tile); }
  void multiply_rank(PackedType type, const Tile& tile) const {
    (type == PackedType::kBF16 ? rank_bf16 : rank_f32)(tile);
  }
};

// Null where this build or this processor has none.
const VectorKernels* base_kernels();
const VectorKernels* avx2_kernels();
const VectorKernels* avx512_kernels();
// The widest that this processor runs.
const VectorKernels& best_kernels();

}  // namespace cadre::cpu_vector
