// Random weights in place of a checkpoint's: to try a deployment, or to measure one, before the real ones are there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "io/checkpoint.h"

namespace cadre {

// The elements of one tensor as random numbers that depend on the seed, the tensor's name and the element's index
// alone, so that any part can be made by itself: matrices are normal with deviation 1/sqrt(row), which keeps a model's
// activations near one; norms and scales are near 1, biases near 0, and the parameters of recurrences in the range that
// training starts from. Codes of quantised tensors are random too, with factors that give the same deviation.
// Immutable; any thread.
class DummyTensor {
 public:
  DummyTensor(const TensorInfo& tensor, std::uint64_t seed);
  // Bytes [begin, begin + out.size()) of the tensor; both at whole elements.
  void fill(std::uint64_t begin, std::span<std::byte> out) const;

 private:
  std::uint64_t key_ = 0;
  int bytes_ = 2;                     // of an element
  std::vector<std::uint32_t> table_;  // bit patterns, equally likely
};

// The same tensors as `plan`'s, in memory, with such elements.
Result<std::shared_ptr<Checkpoint>> make_dummy_weights(const Checkpoint& plan, std::uint64_t seed, ThreadPool& threads);

}  // namespace cadre
