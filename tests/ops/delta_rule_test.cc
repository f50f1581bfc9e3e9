#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kHeads = 6, kGroups = 3, kKeys = 11, kWidth = 7, kSlots = 3;

struct Inputs {
  std::int64_t rows;
  Floats q, k, v, a, b;
};
struct Constants {
  Floats a_log = random_weights(DType::kBF16, 91, kHeads, 2), dt_bias = random_weights(DType::kBF16, 92, kHeads);
};

Inputs make_inputs(unsigned seed, std::int64_t rows) {
  Inputs in{rows,
            random_floats(seed, rows * kGroups * kKeys),
            random_floats(seed + 1, rows * kGroups * kKeys, 3),
            random_floats(seed + 2, rows * kHeads * kWidth),
            random_floats(seed + 3, rows * kHeads, 3),
            random_floats(seed + 4, rows * kHeads, 4)};
  in.a[0] = 50;                                         // beyond the softplus threshold: the state is forgotten
  for (std::size_t i = 0; i < kKeys; ++i) in.q[i] = 0;  // a length of 0 divides nothing by 0
  return in;
}

Inputs rows_of(const Inputs& in, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](const Floats& all) {
    const std::int64_t width = static_cast<std::int64_t>(all.size()) / in.rows;
    return Floats(all.begin() + begin * width, all.begin() + end * width);
  };
  return {end - begin, cut(in.q), cut(in.k), cut(in.v), cut(in.a), cut(in.b)};
}

Floats joined(Floats a, const Floats& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Inputs joined(const Inputs& x, const Inputs& y) {
  return {x.rows + y.rows, joined(x.q, y.q), joined(x.k, y.k), joined(x.v, y.v), joined(x.a, y.a), joined(x.b, y.b)};
}

Floats run_rule(TestExec& run, const View& state, const std::vector<Part>& parts, const Inputs& in,
                bool in_place = false) {
  const auto ops = make_reference_ops();
  const Constants constants;
  const Batch batch = make_batch(run, parts);
  Ops::DeltaRule args;
  args.q = run.put_strided({in.rows, kGroups, kKeys}, in.q, 7);
  args.k = run.put_strided({in.rows, kGroups, kKeys}, in.k);
  args.v = run.put_strided({in.rows, kHeads, kWidth}, in.v, 1);
  args.a = run.put_strided({in.rows, kHeads}, in.a, 2);
  args.b = run.put_strided({in.rows, kHeads}, in.b, 3);
  args.a_log = run.put(DType::kBF16, {kHeads}, constants.a_log);
  args.dt_bias = run.put(DType::kBF16, {kHeads}, constants.dt_bias);
  const View out = in_place ? args.v : run.make({in.rows, kHeads, kWidth}, 3);
  ops->delta_rule(run.exec, out, args, state, batch);
  return run.get(out);
}

View fresh_state(TestExec& run) { return run.make({kSlots, kHeads, kKeys, kWidth}); }

std::vector<double> unit(const Floats& x, std::size_t first) {
  double squares = 1e-6;
  for (std::size_t i = 0; i < kKeys; ++i) squares += static_cast<double>(x[first + i]) * x[first + i];
  std::vector<double> out;
  for (std::size_t i = 0; i < kKeys; ++i) out.push_back(x[first + i] / std::sqrt(squares));
  return out;
}

// The recurrence in double, and beside it how large its terms are.
std::vector<Exact> expected(const Inputs& in) {
  const Constants constants;
  std::vector<Exact> out(in.v.size());
  for (std::size_t h = 0; h < kHeads; ++h) {
    const std::size_t group = h / (kHeads / kGroups);
    std::vector<Exact> state(kKeys * kWidth);
    for (std::size_t t = 0; t < static_cast<std::size_t>(in.rows); ++t) {
      const double step = std::log1p(std::exp(static_cast<double>(in.a[t * kHeads + h]) + constants.dt_bias[h]));
      const double decay = std::exp(-std::exp(static_cast<double>(constants.a_log[h])) * step);
      const double beta = 1 / (1 + std::exp(-static_cast<double>(in.b[t * kHeads + h])));
      const std::vector<double> q = unit(in.q, (t * kGroups + group) * kKeys);
      const std::vector<double> k = unit(in.k, (t * kGroups + group) * kKeys);
      for (std::size_t j = 0; j < kWidth; ++j) {
        Exact remembered;
        for (std::size_t i = 0; i < kKeys; ++i) {
          Exact& cell = state[i * kWidth + j];
          cell = {cell.value * decay, cell.magnitude * decay};
          remembered.value += cell.value * k[i];
          remembered.magnitude += cell.magnitude * std::fabs(k[i]);
        }
        const double v = in.v[(t * kHeads + h) * kWidth + j];
        const double change = (v - remembered.value) * beta, size = (std::fabs(v) + remembered.magnitude) * beta;
        Exact& y = out[(t * kHeads + h) * kWidth + j];
        for (std::size_t i = 0; i < kKeys; ++i) {
          Exact& cell = state[i * kWidth + j];
          cell = {cell.value + k[i] * change, cell.magnitude + std::fabs(k[i]) * size};
          y.value += cell.value * q[i] / std::sqrt(static_cast<double>(kKeys));
          y.magnitude += cell.magnitude * std::fabs(q[i]) / std::sqrt(static_cast<double>(kKeys));
        }
      }
    }
  }
  return out;
}

TEST(DeltaRule, MatchesDouble) {
  const Inputs in = make_inputs(1, 17);
  for (const bool in_place : {false, true}) {
    const Floats got = run_everywhere(
        [&](TestExec& run) { return run_rule(run, fresh_state(run), {{.rows = 17, .state_slot = 1}}, in, in_place); });
    expect_close(got, expected(in));
  }
}

// With orthogonal keys and beta near 1 it is an associative memory: a query equal to a key reads that key's last value.
TEST(DeltaRule, AKeyReadsItsLastValue) {
  Inputs in = make_inputs(5, 3);
  std::fill(in.q.begin(), in.q.end(), 0.0f);
  std::fill(in.k.begin(), in.k.end(), 0.0f);
  std::fill(in.a.begin(), in.a.end(), -60.0f);  // forgets nothing
  std::fill(in.b.begin(), in.b.end(), 60.0f);   // writes all
  for (std::size_t g = 0; g < kGroups; ++g) {
    for (std::size_t t = 0; t < 3; ++t) in.k[(t * kGroups + g) * kKeys + (t == 1 ? 4 : 2)] = 1000;
    in.q[(2 * kGroups + g) * kKeys + 2] = 1000;
  }
  const Floats got = run_everywhere([&](TestExec& run) { return run_rule(run, fresh_state(run), {{.rows = 3}}, in); });
  for (std::size_t i = 0; i < kHeads * kWidth; ++i) {
    const float want = in.v[2 * kHeads * kWidth + i] / std::sqrt(static_cast<float>(kKeys));
    EXPECT_NEAR(got[2 * kHeads * kWidth + i], want, 1e-6f) << i;
  }
}

TEST(DeltaRule, BitsDoNotDependOnChunksOrOtherSequences) {
  const Inputs a = make_inputs(1, 12), b = make_inputs(11, 5);
  const auto alone = [&](const Inputs& in) {
    return run_everywhere([&](TestExec& run) {
      return run_rule(run, fresh_state(run), {{.rows = static_cast<std::int32_t>(in.rows)}}, in);
    });
  };
  const Floats whole_a = alone(a), whole_b = alone(b);
  constexpr std::int64_t kRow = kHeads * kWidth;
  const auto part = [](const Floats& all, std::int64_t begin, std::int64_t end) {
    return Floats(all.begin() + begin * kRow, all.begin() + end * kRow);
  };
  run_everywhere([&](TestExec& run) {
    const View state = fresh_state(run);
    const Floats first = run_rule(run, state, {{.rows = 4, .state_slot = 2}}, rows_of(a, 0, 4));
    const Floats second =
        run_rule(run, state, {{.rows = 3, .state_slot = 0}, {.cached = 4, .rows = 1, .state_slot = 2}},
                 joined(rows_of(b, 0, 3), rows_of(a, 4, 5)));
    const Floats third =
        run_rule(run, state, {{.cached = 5, .rows = 7, .state_slot = 2}, {.cached = 3, .rows = 2, .state_slot = 0}},
                 joined(rows_of(a, 5, 12), rows_of(b, 3, 5)));
    for (const float untouched : run.get(state.at(1))) EXPECT_TRUE(std::isnan(untouched));
    expect_same_bits(joined(joined(first, part(second, 3, 4)), part(third, 0, 7)), whole_a, "in three chunks");
    expect_same_bits(joined(part(second, 0, 3), part(third, 7, 9)), whole_b, "in two chunks");
    return third;
  });
}

TEST(DeltaRule, AFreshSequenceForgetsTheSlot) {
  const Inputs in = make_inputs(1, 6);
  run_everywhere([&](TestExec& run) {
    const View state = fresh_state(run);
    const Floats first = run_rule(run, state, {{.rows = 6}}, in);
    expect_same_bits(run_rule(run, state, {{.rows = 6}}, in), first, "the same slot again, from the start");
    return first;
  });
}

TEST(DeltaRule, NoRows) {
  EXPECT_TRUE(run_everywhere([&](TestExec& run) {
                return run_rule(run, fresh_state(run), {}, {0, {}, {}, {}, {}, {}});
              }).empty());
}

TEST(Copy, RowsAndHeadsOfAnyStride) {
  const auto ops = make_reference_ops();
  const Floats x = random_floats(1, 4 * 3 * 5);
  const Floats heads = run_everywhere([&](TestExec& run) {
    // The second part of each head on one side, the second half of each row on the other.
    const View from = run.put_strided({4, 3, 5}, x, 6).slice(2, 1, 4), to = run.make({4, 20}).slice(1, 11, 20);
    ops->copy(run.exec, to.split_last(3), from);
    return run.get(to);
  });
  for (std::size_t i = 0; i < 4 * 3; ++i) {
    for (std::size_t d = 0; d < 3; ++d) EXPECT_EQ(heads[i * 3 + d], x[i * 5 + d + 1]);
  }
  const Floats rows = run_everywhere([&](TestExec& run) {
    const View to = run.make({12, 5}, 2);
    ops->copy(run.exec, to, run.put_strided({12, 5}, x, 3));
    return run.get(to);
  });
  expect_same_bits(rows, x, "rows");
}

}  // namespace
}  // namespace cadre::test
