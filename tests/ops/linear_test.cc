#include <gtest/gtest.h>

#include <algorithm>

#include "ops/ops.h"
#include "support/exec_fixture.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kIn = 77, kOut = 19;

struct Term {
  int rank;
  float scale;
  Floats a, b;
};

// x W^T + bias + scale * B (A x), row by row.
std::vector<Exact> expected(const Floats& x, const Floats& w, const Floats& bias,
                            const std::vector<const Term*>& terms) {
  std::vector<Exact> out;
  for (std::size_t t = 0; t < terms.size(); ++t) {
    for (std::size_t n = 0; n < kOut; ++n) {
      Exact y;
      for (std::size_t k = 0; k < kIn; ++k) y.add(static_cast<double>(x[t * kIn + k]) * w[n * kIn + k]);
      if (!bias.empty()) y.add(bias[n]);
      for (int r = 0; terms[t] != nullptr && r < terms[t]->rank; ++r) {
        const std::size_t ri = static_cast<std::size_t>(r);
        for (std::size_t k = 0; k < kIn; ++k) {
          y.add(static_cast<double>(terms[t]->scale) * x[t * kIn + k] * terms[t]->a[ri * kIn + k] *
                terms[t]->b[n * static_cast<std::size_t>(terms[t]->rank) + ri]);
        }
      }
      out.push_back(y);
    }
  }
  return out;
}

TEST(Linear, MatchesDoubleForEveryTypeAndCount) {
  const auto ops = make_reference_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Floats w = random_weights(dtype, 1, kOut * kIn), bias = random_weights(dtype, 2, kOut);
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 131}) {
      for (const bool with_bias : {false, true}) {
        const Floats x = random_floats(3, tokens * kIn);
        const Floats got = run_everywhere([&](TestExec& run) {
          const View out = run.make({tokens, kOut}, 5);
          ops->linear(run.exec, out, run.put_strided({tokens, kIn}, x), run.put_strided(dtype, {kOut, kIn}, w, 4),
                      with_bias ? run.put(dtype, {kOut}, bias) : View(), nullptr, View());
          return run.get(out);
        });
        expect_close(got, expected(x, w, with_bias ? bias : Floats(), std::vector<const Term*>(tokens)));
      }
    }
  }
}

TEST(Linear, GapsOfTheOutputStayUntouched) {
  const auto ops = make_reference_ops();
  run_everywhere([&](TestExec& run) {
    View all = run.put({3, kOut + 2}, Floats(3 * (kOut + 2), 7.0f));
    ops->linear(run.exec, all.slice(1, 1, kOut + 1), run.put({3, kIn}, random_floats(1, 3 * kIn)),
                run.put({kOut, kIn}, random_floats(2, kOut * kIn)), View(), nullptr, View());
    const Floats got = run.get(all);
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_EQ(got[t * (kOut + 2)], 7.0f);
      EXPECT_EQ(got[t * (kOut + 2) + kOut + 1], 7.0f);
    }
    return got;
  });
}

TEST(Linear, ARowDoesNotDependOnOthers) {
  const auto ops = make_reference_ops();
  constexpr std::int64_t kTokens = 70;
  const Floats x = random_floats(3, kTokens * kIn), w = random_weights(DType::kBF16, 1, kOut * kIn);
  const auto compute = [&](std::int64_t first, std::int64_t last) {
    TestExec run({"cpu", 2});
    const View out = run.make({last - first, kOut}), in = run.put({kTokens, kIn}, x).slice(0, first, last);
    ops->linear(run.exec, out, in, run.put(DType::kBF16, {kOut, kIn}, w), View(), nullptr, View());
    return run.get(out);
  };
  const Floats together = compute(0, kTokens);
  for (const std::int64_t t : {0, 5, 63, 64, 69}) {
    expect_same_bits(compute(t, t + 1), Floats(together.begin() + t * kOut, together.begin() + (t + 1) * kOut), "row");
  }
}

TEST(Linear, AdaptersOfDifferentRanksMix) {
  const auto ops = make_reference_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Floats w = random_weights(dtype, 1, kOut * kIn), x = random_floats(3, 9 * kIn), bias = random_floats(4, kOut);
    const auto term = [&](unsigned seed, int rank, float scale) {
      return Term{rank, scale, random_weights(dtype, seed, rank * kIn), random_weights(dtype, seed + 1, rank * kOut)};
    };
    const Term one = term(10, 1, 2.0f), wide = term(20, 40, -0.3f);
    const Ints slots{-1, 0, 2, 0, 1, -1, 2, 2, 0};  // slot 1 stays empty
    const auto compute = [&](TestExec& run, bool use, const Ints& by_row) {
      LoraTable table = run.lora_table(3, 1);
      const auto low = [&](const Term& from) {
        return LowRank{run.host(dtype, {from.rank, kIn}, from.a), run.host(dtype, {kOut, from.rank}, from.b),
                       from.scale};
      };
      run.set(table, 0, {low(one)});
      run.set(table, 2, {low(wide)});
      const View out = run.make({9, kOut});
      ops->linear(run.exec, out, run.put_strided({9, kIn}, x), run.put(dtype, {kOut, kIn}, w), run.put({kOut}, bias),
                  use ? &table : nullptr, run.put(by_row));
      return run.get(out);
    };
    const Floats mixed = run_everywhere([&](TestExec& run) { return compute(run, true, slots); });
    const Floats base = run_everywhere([&](TestExec& run) { return compute(run, false, slots); });
    std::vector<const Term*> terms;
    for (const int slot : slots) terms.push_back(slot == 0 ? &one : slot == 2 ? &wide : nullptr);
    expect_close(mixed, expected(x, w, bias, terms));

    for (std::size_t t = 0; t < slots.size(); ++t) {
      const auto part = [&](const Floats& all) { return Floats(all.begin() + t * kOut, all.begin() + (t + 1) * kOut); };
      if (slots[t] == -1 || slots[t] == 1) {
        expect_same_bits(part(mixed), part(base), "a row without an adapter among rows with one");
      } else {
        EXPECT_NE(part(mixed), part(base)) << "the adapter of row " << t << " changes nothing";
        TestExec run;
        expect_same_bits(part(compute(run, true, Ints(9, slots[t]))), part(mixed), "one adapter for all rows");
      }
    }
  }
}

TEST(Linear, AReplacementTakesThePlaceOfTheWeight) {
  const auto ops = make_reference_ops();
  const Floats w = random_floats(1, kOut * kIn), other = random_weights(DType::kBF16, 2, kOut * kIn);
  const Floats x = random_floats(3, 3 * kIn), bias = random_floats(4, kOut);
  const Floats got = run_everywhere([&](TestExec& run) {
    LoraTable table = run.lora_table(2, 1);
    run.set(table, 1, {}, run.host(DType::kBF16, {kOut, kIn}, other));
    const View out = run.make({3, kOut});
    ops->linear(run.exec, out, run.put({3, kIn}, x), run.put({kOut, kIn}, w), run.put({kOut}, bias), &table,
                run.put(Ints{0, 1, -1}));
    return run.get(out);
  });
  const std::vector<const Term*> none(3);
  std::vector<Exact> want = expected(x, w, bias, none);
  const std::vector<Exact> replaced = expected(x, other, bias, none);
  std::copy(replaced.begin() + kOut, replaced.begin() + 2 * kOut, want.begin() + kOut);
  expect_close(got, want);
}

TEST(Linear, NoRows) {
  const auto ops = make_reference_ops();
  const Floats got = run_everywhere([&](TestExec& run) {
    LoraTable table = run.lora_table(1, 1);
    const View out = run.make({0, kOut});
    ops->linear(run.exec, out, run.put({0, kIn}, Floats()), run.put({kOut, kIn}, Floats(kOut * kIn)), View(), &table,
                run.put(Ints()));
    return run.get(out);
  });
  EXPECT_TRUE(got.empty());
}

TEST(Linear, AMeasuringArenaRunsNothing) {
  const auto ops = make_reference_ops();
  TestExec run;
  Arena measuring;
  run.exec.arena = &measuring;
  const View x = measuring.alloc(DType::kF32, {4, kIn}), out = measuring.alloc(DType::kF32, {4, kOut});
  ops->linear(run.exec, out, x, run.put({kOut, kIn}, Floats(kOut * kIn)), View(), nullptr, View());
  EXPECT_GE(measuring.peak(), static_cast<std::size_t>(4 * (kIn + kOut) * 4));
}

}  // namespace
}  // namespace cadre::test
