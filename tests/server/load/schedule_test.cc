#include "server/load/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace cadre::server {
namespace {

TEST(Arrivals, HaveTheMeanAndTheSpreadOfAPoissonProcess) {
  constexpr int kCount = 100'000;
  constexpr double kRate = 8;
  Arrivals arrivals(kRate, 3);
  double before = 0, sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double at = arrivals.next();
    ASSERT_GE(at, before);
    sum += at - before;
    squares += (at - before) * (at - before);
    before = at;
  }
  const double mean = sum / kCount, deviation = std::sqrt(squares / kCount - mean * mean);
  EXPECT_NEAR(mean, 1 / kRate, 5 / kRate / std::sqrt(kCount));
  EXPECT_NEAR(deviation, 1 / kRate, 0.02 / kRate);
}

TEST(Arrivals, AreThoseOfTheSeed) {
  Arrivals a(1, 7), b(1, 7), c(1, 8);
  const double first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
}

TEST(PickTarget, FollowsTheShares) {
  const std::vector<LoadTarget> targets = {{"a", 1}, {"b", 7}, {"c", 2}};
  LoadRandom random(5);
  std::vector<int> counts(3);
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) ++counts[pick_target(targets, random)];
  EXPECT_NEAR(counts[0] / double{kCount}, 0.1, 0.01);
  EXPECT_NEAR(counts[1] / double{kCount}, 0.7, 0.01);
  EXPECT_NEAR(counts[2] / double{kCount}, 0.2, 0.01);
}

TEST(LoadRandom, RangesReachBothEnds) {
  LoadRandom random(1);
  std::vector<int> counts(10);
  for (int i = 0; i < 10'000; ++i) ++counts.at(static_cast<std::size_t>(random.in({2, 5})));
  EXPECT_EQ(counts[1] + counts[6], 0);
  for (int i = 2; i <= 5; ++i) EXPECT_NEAR(counts[static_cast<std::size_t>(i)], 2500, 250);
  EXPECT_EQ(random.in({9, 9}), 9);
}

}  // namespace
}  // namespace cadre::server
