// Draws over many positions: the right proportions, and the same tokens on every machine and in every batch.
#include <gtest/gtest.h>

#include <thread>

#include "engine/sampling/sampler.h"
#include "engine/sampling_reference.h"

namespace cadre {
namespace {

SamplingParams drawing(std::uint64_t seed) {
  SamplingParams params;
  params.temperature = 1;
  params.seed = seed;
  return params;
}

std::vector<std::int32_t> tokens(const std::vector<float>& logits, const SamplingParams& params, std::size_t count,
                                 std::uint32_t choice = 0) {
  std::vector<std::int32_t> out;
  for (std::size_t position = 0; position < count; ++position) {
    std::vector<float> row = logits;
    out.push_back(sample(row, params, {}, position, choice).value());
  }
  return out;
}

std::vector<int> counts(const std::vector<std::int32_t>& ids, std::size_t vocab) {
  std::vector<int> out(vocab);
  for (const std::int32_t id : ids) ++out[id];
  return out;
}

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.0f, 0.0f, 3.0f, -2.0f, 1.5f};

// From an independent program that follows the definitions.
TEST(Distribution, ExactTokensOfAFixedSeed) {
  EXPECT_EQ(tokens(kLogits, drawing(1), 16),
            (std::vector<std::int32_t>{3, 3, 1, 5, 1, 5, 5, 5, 3, 1, 1, 1, 2, 5, 7, 5}));
  EXPECT_EQ(counts(tokens(kLogits, drawing(1), 10000), 8), (std::vector<int>{465, 1915, 87, 710, 257, 5361, 43, 1162}));
  SamplingParams filtered = drawing(12345678901234567890u);
  filtered.temperature = 0.7;
  filtered.top_k = 5;
  filtered.top_p = 0.95;
  EXPECT_EQ(counts(tokens(kLogits, filtered, 10000), 8), (std::vector<int>{0, 1672, 0, 422, 0, 7098, 0, 808}));
}

TEST(Distribution, ProportionsPassChiSquare) {
  constexpr int kDraws = 40000;
  for (const bool top_k_path : {false, true}) {
    SamplingParams params = drawing(99);
    params.temperature = 1.3;
    params.top_k = top_k_path ? 7 : 0;
    const std::vector<double> p = test::reference_distribution(kLogits, params, {}, {});
    const std::vector<int> got = counts(tokens(kLogits, params, kDraws), kLogits.size());
    double chi = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0) {
        EXPECT_EQ(got[i], 0);
        continue;
      }
      const double want = p[i] * kDraws;
      chi += (got[i] - want) * (got[i] - want) / want;
    }
    EXPECT_LT(chi, 26);  // 7 degrees of freedom: 1 in 2,000
  }
}

TEST(Distribution, SeedChoiceAndPositionAllMatter) {
  const std::vector<float> flat(1000, 1.0f);
  const auto base = tokens(flat, drawing(5), 200);
  EXPECT_EQ(base, tokens(flat, drawing(5), 200));
  const auto agreeing = [&](const std::vector<std::int32_t>& other) {
    int same = 0;
    for (std::size_t i = 0; i < base.size(); ++i) same += base[i] == other[i];
    return same;
  };
  EXPECT_LT(agreeing(tokens(flat, drawing(6), 200)), 5);
  EXPECT_LT(agreeing(tokens(flat, drawing(5 + (1ull << 32)), 200)), 5);
  EXPECT_LT(agreeing(tokens(flat, drawing(5), 200, 1)), 5);
  const auto spread = counts(base, flat.size());
  EXPECT_GT(std::count_if(spread.begin(), spread.end(), [](int n) { return n > 0; }), 150);
  for (const std::int32_t id : base) EXPECT_EQ(flat[id], 1.0f);
}

// Filters drop tokens but do not move the noise: a token that is kept stays where the better ones leave it.
TEST(Distribution, FiltersKeepTheNoise) {
  const std::vector<float> flat(4, 0.0f);
  SamplingParams half = drawing(5);
  half.top_k = 2;
  const auto all = tokens(flat, drawing(5), 100);
  const auto kept = tokens(flat, half, 100);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(kept[i], all[i] / 2);
}

TEST(Distribution, ThreadsAgree) {
  test::Random random(3);
  const std::vector<float> logits = random.logits(5000, 2);
  SamplingParams params = drawing(8);
  params.top_p = 0.9;
  const auto alone = tokens(logits, params, 50);
  std::vector<std::vector<std::int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = tokens(logits, params, 50); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, alone);
}

TEST(Distribution, FreshSeedsDiffer) {
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 20; ++i) seeds.insert(fresh_seed());
  EXPECT_EQ(seeds.size(), 20u);
}

}  // namespace
}  // namespace cadre
