// Rehearsal: before a request meets a kernel, the kernel runs once on the layer's own weights at the largest batch,
// with and without adapters, and sampled rows are compared with the reference.
#pragma once

#include <map>

#include "moe/experts.h"
#include "tensor/exec.h"

namespace cadre {

// quick: the largest call of the token mix that has at most 64 rows, otherwise its smallest; full: all of the mix and
// the largest batch.
enum class RehearseMode : std::uint8_t { kOff, kQuick, kFull };

struct RehearsalReport {
  std::map<int, double> measured_us;  // by rows, best of two runs, without adapters
  double error = 0;                   // largest difference of a sampled row, over the root mean square of their norms
  double seconds = 0;                 // the whole rehearsal
};

// Bound of RehearsalReport::error: activations rounded to BF16 between two GEMMs differ by about 2^-8 of a row's norm;
// a dropped clamp, a wrong half or a missing adapter by far more.
inline constexpr double kRehearsalBound = 1.0 / 64;

// `candidate` and `reference` hold the same layer and shard. Slot 0 of both is used and left empty, where the
// deployment has adapters. kInternal where the results differ by more than the bound or are not finite.
Result<RehearsalReport> rehearse(Experts& candidate, Experts& reference, const LayerSpec& spec,
                                 const Deployment& deployment, Device& device, Stream& stream, ThreadPool& threads,
                                 RehearseMode mode);

}  // namespace cadre
