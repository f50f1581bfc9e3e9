#include "engine/sampling/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace cadre {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers that the authors publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformUsesTheFirstTwoWords) {
  const std::uint64_t bits = 0xe169c58d6627e8d5u;
  EXPECT_EQ(uniform_at(0, 0, 0), static_cast<double>(bits >> 11) / 9007199254740992.0);
}

TEST(Philox, EveryCoordinateCounts) {
  std::set<double> seen;
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (const std::uint32_t choice : {0u, 1u, 7u}) {
      for (const std::uint64_t position : {0ull, 1ull, 1ull << 32, ~0ull}) {
        const double u = uniform_at(seed, choice, position);
        EXPECT_GE(u, 0);
        EXPECT_LT(u, 1);
        EXPECT_EQ(u, uniform_at(seed, choice, position));
        seen.insert(u);
      }
    }
  }
  EXPECT_EQ(seen.size(), 48u);
}

TEST(Philox, UniformIsUniform) {
  constexpr int kBins = 64;
  constexpr int kDraws = 64 * 1000;
  std::array<int, kBins> counts{};
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform_at(42, 3, static_cast<std::uint64_t>(i));
    sum += u;
    ++counts[static_cast<std::size_t>(u * kBins)];
  }
  double chi = 0;
  for (const int count : counts) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi, 120);  // 63 degrees of freedom: 1 in 50,000
  EXPECT_GT(chi, 25);   // and not suspiciously even
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
}

}  // namespace
}  // namespace cadre
