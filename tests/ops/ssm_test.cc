#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kHeads = 6, kWidth = 5, kGroups = 3, kSize = 19, kSlots = 3;
constexpr float kDtMin = 0.01f, kDtMax = 1.5f;

struct Inputs {
  std::int64_t rows;
  Floats x, dt, b, c;
};
struct Constants {
  Floats a_log = random_weights(DType::kBF16, 91, kHeads), d = random_weights(DType::kBF16, 92, kHeads),
         dt_bias = random_weights(DType::kBF16, 93, kHeads);
};

Inputs make_inputs(unsigned seed, std::int64_t rows) {
  Inputs in{rows, random_floats(seed, rows * kHeads * kWidth), random_floats(seed + 1, rows * kHeads, 3),
            random_floats(seed + 2, rows * kGroups * kSize), random_floats(seed + 3, rows * kGroups * kSize)};
  in.dt[0] = 50;  // beyond the softplus threshold, then clamped
  return in;
}

Inputs rows_of(const Inputs& in, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](const Floats& all) {
    const std::int64_t width = static_cast<std::int64_t>(all.size()) / in.rows;
    return Floats(all.begin() + begin * width, all.begin() + end * width);
  };
  return {end - begin, cut(in.x), cut(in.dt), cut(in.b), cut(in.c)};
}

Floats joined(Floats a, const Floats& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Inputs joined(const Inputs& a, const Inputs& b) {
  return {a.rows + b.rows, joined(a.x, b.x), joined(a.dt, b.dt), joined(a.b, b.b), joined(a.c, b.c)};
}

Floats scan(TestExec& run, const View& state, const std::vector<Part>& parts, const Inputs& in, float dt_max = kDtMax) {
  const auto ops = make_reference_ops();
  const Constants constants;
  const Batch batch = make_batch(run, parts);
  Ops::SsmScan args;
  args.x = run.put_strided({in.rows, kHeads, kWidth}, in.x, 7);
  args.dt = run.put_strided({in.rows, kHeads}, in.dt);
  args.b = run.put_strided({in.rows, kGroups, kSize}, in.b, 1);
  args.c = run.put_strided({in.rows, kGroups, kSize}, in.c, 2);
  args.a_log = run.put(DType::kBF16, {kHeads}, constants.a_log);
  args.d = run.put(DType::kBF16, {kHeads}, constants.d);
  args.dt_bias = run.put(DType::kBF16, {kHeads}, constants.dt_bias);
  args.dt_min = kDtMin;
  args.dt_max = dt_max;
  const View out = run.make({in.rows, kHeads, kWidth}, 3);
  ops->ssm_scan(run.exec, out, args, state, batch);
  return run.get(out);
}

View fresh_state(TestExec& run) { return run.make({kSlots, kHeads, kWidth, kSize}); }

std::vector<Exact> expected(const Inputs& in, double dt_max) {
  const Constants constants;
  std::vector<Exact> out(in.x.size());
  for (std::size_t h = 0; h < kHeads; ++h) {
    const std::size_t group = h / (kHeads / kGroups);
    for (std::size_t p = 0; p < kWidth; ++p) {
      std::vector<double> state(kSize), size(kSize);
      for (std::size_t t = 0; t < static_cast<std::size_t>(in.rows); ++t) {
        const double raw = static_cast<double>(in.dt[t * kHeads + h]) + constants.dt_bias[h];
        const double dt = std::clamp<double>(std::log1p(std::exp(raw)), kDtMin, dt_max);
        const double decay = std::exp(-dt * std::exp(static_cast<double>(constants.a_log[h])));
        const double x = in.x[(t * kHeads + h) * kWidth + p];
        Exact y;
        for (std::size_t n = 0; n < kSize; ++n) {
          const double b = in.b[(t * kGroups + group) * kSize + n], c = in.c[(t * kGroups + group) * kSize + n];
          state[n] = state[n] * decay + dt * x * b;
          size[n] = size[n] * decay + std::fabs(dt * x * b);
          y.value += state[n] * c;
          y.magnitude += size[n] * std::fabs(c);
        }
        y.add(constants.d[h] * x);
        out[(t * kHeads + h) * kWidth + p] = y;
      }
    }
  }
  return out;
}

TEST(SsmScan, MatchesDouble) {
  const Inputs in = make_inputs(1, 17);
  for (const float dt_max : {kDtMax, std::numeric_limits<float>::infinity()}) {
    const Floats got = run_everywhere(
        [&](TestExec& run) { return scan(run, fresh_state(run), {{.rows = 17, .state_slot = 1}}, in, dt_max); });
    expect_close(got, expected(in, dt_max));
  }
}

TEST(SsmScan, BitsDoNotDependOnChunksOrOtherSequences) {
  const Inputs a = make_inputs(1, 12), b = make_inputs(11, 5);
  const auto alone = [&](const Inputs& in) {
    return run_everywhere(
        [&](TestExec& run) { return scan(run, fresh_state(run), {{.rows = static_cast<std::int32_t>(in.rows)}}, in); });
  };
  const Floats whole_a = alone(a), whole_b = alone(b);
  constexpr std::int64_t kRow = kHeads * kWidth;
  const auto part = [](const Floats& all, std::int64_t begin, std::int64_t end) {
    return Floats(all.begin() + begin * kRow, all.begin() + end * kRow);
  };
  run_everywhere([&](TestExec& run) {
    const View state = fresh_state(run);
    const Floats first = scan(run, state, {{.rows = 4, .state_slot = 2}}, rows_of(a, 0, 4));
    const Floats second = scan(run, state, {{.rows = 3, .state_slot = 0}, {.cached = 4, .rows = 1, .state_slot = 2}},
                               joined(rows_of(b, 0, 3), rows_of(a, 4, 5)));
    const Floats third =
        scan(run, state, {{.cached = 5, .rows = 7, .state_slot = 2}, {.cached = 3, .rows = 2, .state_slot = 0}},
             joined(rows_of(a, 5, 12), rows_of(b, 3, 5)));
    for (const float untouched : run.get(state.at(1))) EXPECT_TRUE(std::isnan(untouched));
    expect_same_bits(joined(joined(first, part(second, 3, 4)), part(third, 0, 7)), whole_a, "in three chunks");
    expect_same_bits(joined(part(second, 0, 3), part(third, 7, 9)), whole_b, "in two chunks");
    return third;
  });
}

TEST(SsmScan, AFreshSequenceForgetsTheSlot) {
  const Inputs in = make_inputs(1, 6);
  run_everywhere([&](TestExec& run) {
    const View state = fresh_state(run);
    const Floats first = scan(run, state, {{.rows = 6}}, in);
    expect_same_bits(scan(run, state, {{.rows = 6}}, in), first, "the same slot again, from the start");
    return first;
  });
}

TEST(SsmScan, NoRows) {
  EXPECT_TRUE(
      run_everywhere([&](TestExec& run) { return scan(run, fresh_state(run), {}, {0, {}, {}, {}, {}}); }).empty());
}

}  // namespace
}  // namespace cadre::test
