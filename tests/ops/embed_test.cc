#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kVocabulary = 23, kWidth = 13;
const Ints kIds{0, 22, 7, 7, 1};

TEST(Embed, CopiesTheRow) {
  const auto ops = make_reference_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Floats table = random_weights(dtype, 1, kVocabulary * kWidth);
    const Floats got = run_everywhere([&](TestExec& run) {
      const Batch batch = make_batch(run, {{.rows = 5, .ids = kIds}});
      const View out = run.make({5, kWidth}, 2);
      ops->embed(run.exec, out, run.put_strided(dtype, {kVocabulary, kWidth}, table, 3), batch, nullptr);
      return run.get(out);
    });
    Floats want;
    for (const int id : kIds) want.insert(want.end(), table.begin() + id * kWidth, table.begin() + (id + 1) * kWidth);
    expect_same_bits(got, want, "rows of the table");
  }
}

TEST(Embed, AdaptersAndReplacements) {
  const auto ops = make_reference_ops();
  constexpr int kRank = 5;
  const DType dtype = DType::kBF16;
  const Floats table = random_weights(dtype, 1, kVocabulary * kWidth);
  const Floats other = random_weights(DType::kF16, 2, kVocabulary * kWidth);
  const Floats a = random_weights(dtype, 3, kRank * kVocabulary), b = random_weights(dtype, 4, kWidth * kRank);
  const Floats got = run_everywhere([&](TestExec& run) {
    LoraTable lora = run.lora_table(3, 1);
    run.set(lora, 0, {{run.host(dtype, {kRank, kVocabulary}, a), run.host(dtype, {kWidth, kRank}, b), 1.5f}});
    run.set(lora, 2, {}, run.host(DType::kF16, {kVocabulary, kWidth}, other));
    const Batch batch = make_batch(run, {{.rows = 1, .slot = -1, .ids = {3}},
                                         {.rows = 2, .slot = 0, .ids = {22, 3}},
                                         {.rows = 1, .slot = 1, .ids = {4}},
                                         {.rows = 1, .slot = 2, .ids = {5}}});
    const View out = run.make({5, kWidth});
    ops->embed(run.exec, out, run.put(dtype, {kVocabulary, kWidth}, table), batch, &lora);
    return run.get(out);
  });
  std::vector<Exact> want;
  const std::size_t ids[] = {3, 22, 3, 4, 5};
  for (std::size_t t = 0; t < 5; ++t) {
    for (std::size_t h = 0; h < kWidth; ++h) {
      Exact y;
      y.add((t == 4 ? other : table)[ids[t] * kWidth + h]);
      for (std::size_t r = 0; r < kRank && (t == 1 || t == 2); ++r) {
        y.add(1.5 * a[r * kVocabulary + ids[t]] * b[h * kRank + r]);
      }
      want.push_back(y);
    }
  }
  expect_close(got, want);
  for (const std::size_t t : {std::size_t{0}, std::size_t{3}, std::size_t{4}}) {
    const Floats& from = t == 4 ? other : table;
    expect_same_bits(Floats(got.begin() + t * kWidth, got.begin() + (t + 1) * kWidth),
                     Floats(from.begin() + ids[t] * kWidth, from.begin() + (ids[t] + 1) * kWidth), "no adapter");
  }
}

TEST(GatherRows, PicksRowsOfFloatsAndOfIntegers) {
  const auto ops = make_reference_ops();
  const Floats x = random_floats(1, 6 * kWidth);
  const Floats got = run_everywhere([&](TestExec& run) {
    const View out = run.make({3, kWidth}, 1), rows = run.put(Ints{5, 0, 5}), slots = run.put(Ints{0, 0, 0});
    ops->gather_rows(run.exec, out, run.put_strided({6, kWidth}, x), rows);
    ops->gather_rows(run.exec, slots, run.put(Ints{9, 8, 7, 6, 5, -4}), rows);
    EXPECT_EQ(run.get_ints(slots), (Ints{-4, 9, -4}));
    return run.get(out);
  });
  Floats want;
  for (const int r : {5, 0, 5}) want.insert(want.end(), x.begin() + r * kWidth, x.begin() + (r + 1) * kWidth);
  expect_same_bits(got, want, "gathered rows");
}

TEST(Embed, NoRows) {
  const auto ops = make_reference_ops();
  EXPECT_TRUE(run_everywhere([&](TestExec& run) {
                const View out = run.make({0, kWidth});
                const View table = run.put({kVocabulary, kWidth}, Floats(kVocabulary * kWidth));
                ops->embed(run.exec, out, table, make_batch(run, {}), nullptr);
                ops->gather_rows(run.exec, out, out, run.put(Ints()));
                return run.get(out);
              }).empty());
}

}  // namespace
}  // namespace cadre::test
