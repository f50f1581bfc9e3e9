// The noise of sampling: a counter-based generator, so that a token's noise depends on nothing but its coordinates.
#pragma once

#include <array>
#include <cstdint>

namespace cadre {

// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a bijection of the
// counter for every key that passes the usual batteries of tests. Chosen because it has no state to carry, order or
// share, and because every GPU library has the same one.
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                      std::array<std::uint32_t, 2> key);

// The draw of one position of one choice: uniform in [0, 1), a multiple of 2^-53.
// key = {seed low, seed high}, counter = {position low, position high, choice, 0}.
[[nodiscard]] double uniform_at(std::uint64_t seed, std::uint32_t choice, std::uint64_t position);

}  // namespace cadre
