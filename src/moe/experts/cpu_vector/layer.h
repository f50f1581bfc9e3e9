// One layer as the kernel sees it, and the run of one call.
#pragma once

#include "base/thread_pool.h"
#include "moe/experts.h"
#include "moe/experts/cpu_vector/adapters.h"
#include "moe/experts/cpu_vector/kernels.h"
#include "moe/plan.h"

namespace cadre::cpu_vector {

// By value: addresses of device memory and sizes. Every matrix of an expert has the same packed size on this rank.
struct Layer {
  LayerSpec spec;
  const VectorKernels* kernels = nullptr;
  std::int64_t first = 0, local = 0;  // this rank's experts
  std::int64_t width = 0;
  std::int64_t intermediate = 0, padded = 0;  // on this rank; as packed
  std::int64_t max_rank = 0;                  // of any adapter, rounded up to kRankBlock; 0: no adapters planned
  const std::byte* weights = nullptr;         // [local, parts] packed matrices, gate (where gated), up, down
  const PackedTerm* terms = nullptr;          // [slots, kParts, local]

  bool gated() const { return spec.activation.gated; }
  std::int64_t matrix_bytes() const { return width * padded * 2; }
  const std::byte* matrix(std::int64_t expert, Part part) const {
    const std::int64_t parts = gated() ? 3 : 2;
    return weights + (expert * parts + part - (gated() ? 0 : 1)) * matrix_bytes();
  }
  // The term of an adapter for one expert, or null.
  const PackedTerm* term(std::int32_t slot, std::int64_t expert, Part part) const {
    if (terms == nullptr || slot < 0) return nullptr;
    const PackedTerm* t = terms + (slot * kParts + part) * local + expert;
    return t->rank > 0 ? t : nullptr;
  }
};

// Scratch of one call, from the arena. A panel holds, for each tile, [k, rows of the tile].
struct Scratch {
  View x;          // panel [pairs, width]
  View activated;  // panel [pairs, padded]
  View down;       // [pairs, width]
  View shrunk[2];  // panel [pairs, max_rank], for gate and up, then for down
  View tiles;      // int32 [pairs, 3]
  View groups;     // int32 [pairs, 2]
};

// Allocates the scratch of a call with this many pairs, in an arena or, to know the size, in one that only measures.
Scratch make_scratch(Arena& arena, const Layer& layer, std::int64_t pairs);

void run_layer(const Layer& layer, const ExpertArgs& args, const MoePlan& plan, const Scratch& scratch,
               ThreadPool& threads);

}  // namespace cadre::cpu_vector
