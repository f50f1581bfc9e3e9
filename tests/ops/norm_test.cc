#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/exec_fixture.h"

namespace cadre::test {
namespace {

constexpr float kEps = 1e-5f;

double silu(double x) { return x / (1 + std::exp(-x)); }

// Normalised parts of `part` elements; weight repeats after `width`.
std::vector<Exact> expected(const std::vector<double>& x, const Floats& weight, std::size_t part) {
  std::vector<Exact> out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double squares = 0;
    for (std::size_t k = i / part * part; k < (i / part + 1) * part; ++k) squares += x[k] * x[k];
    Exact y;
    y.add(x[i] / std::sqrt(squares / static_cast<double>(part) + kEps) * weight[i % weight.size()]);
    out.push_back(y);
  }
  return out;
}

TEST(RmsNorm, RowsAndHeadsOfEveryWeightType) {
  const auto ops = make_reference_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t width : {1, 7, 33, 100}) {
      const Floats x = random_floats(1, 6 * width, 3), weight = random_weights(dtype, 2, width);
      const Floats rows = run_everywhere([&](TestExec& run) {
        const View out = run.make({6, width}, 2);
        ops->rms_norm(run.exec, out, run.put_strided({6, width}, x), run.put(dtype, {width}, weight), kEps);
        return run.get(out);
      });
      expect_close(rows, expected({x.begin(), x.end()}, weight, static_cast<std::size_t>(width)));
      const Floats heads = run_everywhere([&](TestExec& run) {
        const View inside = run.put_strided({2, 3, width}, x, 5);
        ops->rms_norm(run.exec, inside, inside, run.put(dtype, {width}, weight), kEps);
        return run.get(inside);
      });
      expect_same_bits(heads, rows, "heads, in place");
    }
  }
}

TEST(GatedGroupNorm, GroupsInPlaceAndNot) {
  const auto ops = make_reference_ops();
  constexpr std::int64_t kTokens = 5, kWidth = 30;
  const Floats x = random_floats(1, kTokens * kWidth, 2), gate = random_floats(2, kTokens * kWidth, 4);
  const Floats weight = random_weights(DType::kBF16, 3, kWidth);
  std::vector<double> gated;
  for (std::size_t i = 0; i < x.size(); ++i) gated.push_back(x[i] * silu(gate[i]));
  for (const int groups : {1, 2, 5}) {
    const auto compute = [&](bool in_place) {
      return run_everywhere([&](TestExec& run) {
        const View in = run.put_strided({kTokens, kWidth}, x);
        const View out = in_place ? in : run.make({kTokens, kWidth}, 1);
        ops->gated_group_norm(run.exec, out, in, run.put_strided({kTokens, kWidth}, gate, 7),
                              run.put(DType::kBF16, {kWidth}, weight), groups, kEps);
        return run.get(out);
      });
    };
    const Floats got = compute(false);
    expect_close(got, expected(gated, weight, static_cast<std::size_t>(kWidth / groups)));
    expect_same_bits(compute(true), got, "in place");
  }
}

TEST(RmsNorm, NoRows) {
  const auto ops = make_reference_ops();
  EXPECT_TRUE(run_everywhere([&](TestExec& run) {
                const View none = run.make({0, 8}), weight = run.put({8}, Floats(8, 1.0f));
                ops->rms_norm(run.exec, none, none, weight, kEps);
                ops->gated_group_norm(run.exec, none, none, none, weight, 2, kEps);
                return run.get(none);
              }).empty());
}

}  // namespace
}  // namespace cadre::test
