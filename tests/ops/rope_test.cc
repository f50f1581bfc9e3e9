#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kHeads = 3, kWidth = 14;
constexpr int kDim = 10;

Floats frequencies(double theta) {
  Floats out;
  for (int i = 0; i < kDim; i += 2)
    out.push_back(static_cast<float>(1 / std::pow(theta, static_cast<double>(i) / kDim)));
  return out;
}

// The angle is position * inv_freq rounded to float32, as models were trained with; the rest is double.
std::vector<Exact> expected(const Floats& x, const std::vector<int>& positions, const std::vector<Floats>& inv_freq,
                            double scale) {
  std::vector<Exact> out;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      const float* in = x.data() + (t * kHeads + h) * kWidth;
      for (std::size_t i = 0; i < kWidth; ++i) {
        Exact y;
        if (i < kDim) {
          const std::size_t pair = i % (kDim / 2);
          const double angle = static_cast<float>(positions[t]) * inv_freq[t][pair];
          const double low = in[pair], high = in[pair + kDim / 2];
          y.add(scale * std::cos(angle) * (i < kDim / 2 ? low : high));
          y.add(scale * std::sin(angle) * (i < kDim / 2 ? -high : low));
          y.magnitude += scale * (std::fabs(low) + std::fabs(high)) * 0.1;
        } else {
          y.add(in[i]);
        }
        out.push_back(y);
      }
    }
  }
  return out;
}

// Three sequences: rows [0, 4) of 4, [30, 33) of 33, [7, 8) of 90 rows in all.
const std::vector<int> kPositions{0, 1, 2, 3, 30, 31, 32, 7};
const std::vector<std::int32_t> kLengths{4, 4, 4, 4, 33, 33, 33, 90};

Floats rotated(const Floats& x, Rope rope, const Floats& inv_freq, const Floats& long_inv_freq) {
  const auto ops = make_reference_ops();
  return run_everywhere([&](TestExec& run) {
    const Batch batch = make_batch(run, {{.cached = 0, .rows = 4, .rope_length = 4},
                                         {.cached = 30, .rows = 3, .rope_length = 33},
                                         {.cached = 7, .rows = 1, .rope_length = 90}});
    Rope used = rope;
    used.dim = kDim;
    used.inv_freq = run.put({kDim / 2}, inv_freq);
    if (!long_inv_freq.empty()) used.long_inv_freq = run.put({kDim / 2}, long_inv_freq);
    const View in = run.put_strided({8, kHeads, kWidth}, x, 6);
    ops->rope(run.exec, in, used, batch);
    return run.get(in);
  });
}

TEST(Rope, Fixed) {
  const Floats x = random_floats(1, 8 * kHeads * kWidth), inv_freq = frequencies(10000);
  Rope rope;
  rope.scale = 1.3f;
  expect_close(rotated(x, rope, inv_freq, {}), expected(x, kPositions, std::vector<Floats>(8, inv_freq), 1.3f));
}

TEST(Rope, DynamicGrowsTheBaseWithTheLengthOfTheSequence) {
  const Floats x = random_floats(1, 8 * kHeads * kWidth), inv_freq = frequencies(500);
  Rope rope;
  rope.length = Rope::Length::kDynamic;
  rope.original_context = 33;
  rope.theta = 500;
  rope.factor = 4;
  std::vector<Floats> by_row(8, inv_freq);  // a length of exactly 33 still takes the table
  by_row[7] = frequencies(500 * std::pow(4 * 90.0 / 33 - 3, 10.0 / 8));
  EXPECT_NE(by_row[7], inv_freq);
  expect_close(rotated(x, rope, inv_freq, {}), expected(x, kPositions, by_row, 1), 1e-5);
}

TEST(Rope, LongShortChoosesByLength) {
  const Floats x = random_floats(1, 8 * kHeads * kWidth), inv_freq = frequencies(500), longer = frequencies(9000);
  Rope rope;
  rope.length = Rope::Length::kLongShort;
  rope.original_context = 33;  // a length of exactly that is still short
  rope.scale = 0.9f;
  std::vector<Floats> by_row(8, inv_freq);
  by_row[7] = longer;
  expect_close(rotated(x, rope, inv_freq, longer), expected(x, kPositions, by_row, 0.9f));
}

TEST(Rope, NoRows) {
  const auto ops = make_reference_ops();
  EXPECT_TRUE(run_everywhere([&](TestExec& run) {
                Rope rope;
                rope.dim = kDim;
                rope.inv_freq = run.put({kDim / 2}, frequencies(100));
                const View none = run.make({0, kHeads, kWidth});
                ops->rope(run.exec, none, rope, make_batch(run, {}));
                return run.get(none);
              }).empty());
}

}  // namespace
}  // namespace cadre::test
