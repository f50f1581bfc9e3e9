// The cost model of CPU backends: reading the weights of the experts that rows reach, plus multiplying. With a few rows
// for each expert the two hardly overlap, and elsewhere one of them is small.
#pragma once

#include <cadre/moe_spec.h>

namespace cadre {

// Predicted seconds of one call. `core_gflop_s`: what one core multiplies at; `intermediate`: on one rank, as padded.
// Memory is taken at 13 GB/s a core up to 250 GB/s (one core of a two-core guest of a Sapphire Rapids server reads
// that) where the device does not say. Adapters count at their largest rank.
double cpu_moe_seconds(const LayerSpec& spec, const Deployment& deployment, int tokens, double core_gflop_s,
                       std::int64_t intermediate);

}  // namespace cadre
