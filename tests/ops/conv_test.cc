#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kChannels = 71, kSlots = 4;

struct Filter {
  std::int64_t taps;
  DType dtype;
  Floats weight, bias;
};

Filter make_filter(std::int64_t taps, DType dtype, bool bias) {
  return {taps, dtype, random_weights(dtype, 5, kChannels * taps),
          bias ? random_weights(dtype, 6, kChannels) : Floats()};
}

// Rows of several sequences laid end to end; `state` carries over.
Floats convolve(TestExec& run, const Filter& filter, const View& state, const std::vector<Part>& parts, const Floats& x,
                bool in_place = false, bool activate = true) {
  const auto ops = make_reference_ops();
  const Batch batch = make_batch(run, parts);
  const View in = run.put_strided({batch.tokens, kChannels}, x);
  const View out = in_place ? in : run.make({batch.tokens, kChannels}, 1);
  const View weight = run.put(filter.dtype, {kChannels, 1, filter.taps}, filter.weight);
  const View bias = filter.bias.empty() ? View() : run.put(filter.dtype, {kChannels}, filter.bias);
  if (activate) {
    ops->conv1d_silu(run.exec, out, in, weight, bias, state, batch);
  } else {
    ops->conv1d(run.exec, out, in, weight, bias, state, batch);
  }
  return run.get(out);
}

// NaN everywhere: what a fresh sequence must not read.
View fresh_state(TestExec& run, std::int64_t taps) { return run.make({kSlots, kChannels, taps - 1}); }

std::vector<Exact> expected(const Filter& filter, const Floats& x, bool activate = true) {
  const std::size_t taps = static_cast<std::size_t>(filter.taps), rows = x.size() / kChannels;
  std::vector<Exact> out;
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t c = 0; c < kChannels; ++c) {
      Exact sum;
      for (std::size_t w = 0; w < taps; ++w) {
        if (t + w + 1 >= taps) {
          sum.add(static_cast<double>(filter.weight[c * taps + w]) * x[(t + w + 1 - taps) * kChannels + c]);
        }
      }
      if (!filter.bias.empty()) sum.add(filter.bias[c]);
      if (activate) sum.value = sum.value / (1 + std::exp(-sum.value));
      out.push_back(sum);
    }
  }
  return out;
}

Floats rows_of(const Floats& all, std::int64_t begin, std::int64_t end) {
  return Floats(all.begin() + begin * kChannels, all.begin() + end * kChannels);
}

Floats joined(Floats a, const Floats& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Conv, MatchesDouble) {
  for (const std::int64_t taps : {1, 2, 4, 7}) {
    for (const bool bias : {false, true}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Filter filter = make_filter(taps, dtype, bias);
        const Floats x = random_floats(1, 9 * kChannels, 2);
        for (const bool in_place : {false, true}) {
          for (const bool activate : {false, true}) {
            const Floats got = run_everywhere([&](TestExec& run) {
              const View state = fresh_state(run, taps);
              return convolve(run, filter, state, {{.rows = 9, .state_slot = 2}}, x, in_place, activate);
            });
            expect_close(got, expected(filter, x, activate));
          }
        }
      }
    }
  }
}

TEST(Conv, TheStateIsTheLastInputsOldestFirst) {
  const Filter filter = make_filter(4, DType::kF32, false);
  const Floats x = random_floats(1, 2 * kChannels);
  run_everywhere([&](TestExec& run) {
    const View state = fresh_state(run, 4);
    convolve(run, filter, state, {{.rows = 2, .state_slot = 1}}, x);
    const Floats after = run.get(state.at(1));
    for (std::size_t c = 0; c < kChannels; ++c) {
      EXPECT_EQ(after[c * 3], 0.0f);
      EXPECT_EQ(after[c * 3 + 1], x[c]);
      EXPECT_EQ(after[c * 3 + 2], x[kChannels + c]);
    }
    for (const float untouched : run.get(state.at(0))) EXPECT_TRUE(std::isnan(untouched));
    return after;
  });
}

TEST(Conv, BitsDoNotDependOnChunksOrOtherSequences) {
  const Filter filter = make_filter(4, DType::kBF16, true);
  const Floats a = random_floats(1, 11 * kChannels), b = random_floats(2, 5 * kChannels);
  const auto alone = [&](const Floats& x, std::int32_t rows) {
    return run_everywhere(
        [&](TestExec& run) { return convolve(run, filter, fresh_state(run, 4), {{.rows = rows}}, x); });
  };
  const Floats whole_a = alone(a, 11), whole_b = alone(b, 5);
  run_everywhere([&](TestExec& run) {
    const View state = fresh_state(run, 4);
    const Floats first = convolve(run, filter, state, {{.rows = 2, .state_slot = 3}}, rows_of(a, 0, 2));
    const Floats second =
        convolve(run, filter, state, {{.rows = 4, .state_slot = 0}, {.cached = 2, .rows = 1, .state_slot = 3}},
                 joined(rows_of(b, 0, 4), rows_of(a, 2, 3)));
    const Floats third = convolve(
        run, filter, state, {{.cached = 3, .rows = 8, .state_slot = 3}, {.cached = 4, .rows = 1, .state_slot = 0}},
        joined(rows_of(a, 3, 11), rows_of(b, 4, 5)));
    expect_same_bits(joined(joined(first, rows_of(second, 4, 5)), rows_of(third, 0, 8)), whole_a, "in three chunks");
    expect_same_bits(joined(rows_of(second, 0, 4), rows_of(third, 8, 9)), whole_b, "in two chunks");
    return third;
  });
}

TEST(Conv, NoRows) {
  const Filter filter = make_filter(4, DType::kF32, true);
  EXPECT_TRUE(
      run_everywhere([&](TestExec& run) { return convolve(run, filter, fresh_state(run, 4), {}, Floats()); }).empty());
}

}  // namespace
}  // namespace cadre::test
