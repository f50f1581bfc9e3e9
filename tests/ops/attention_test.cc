#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kHeads = 6, kKvHeads = 2, kDim = 12, kPageSize = 4, kPages = 16;

// One sequence of n rows, whole.
struct Sequence {
  std::int64_t rows;
  Floats q, k, v;
  Ints blocks;
};

Sequence make_sequence(unsigned seed, std::int64_t rows, Ints blocks) {
  return {rows, random_floats(seed, rows * kHeads * kDim, 3), random_floats(seed + 1, rows * kKvHeads * kDim),
          random_floats(seed + 2, rows * kKvHeads * kDim), std::move(blocks)};
}

struct Chunk {
  const Sequence* sequence;
  std::int32_t begin, end;
};

// One batch on pages that are NaN where nothing was written; rows of the result in the order of the chunks.
Floats run_batch(TestExec& run, const View& pages, const std::vector<Chunk>& chunks, const AttentionSpec& spec) {
  const auto ops = make_reference_ops();
  std::vector<Part> parts;
  Floats q, k, v;
  std::int64_t rows = 0;
  for (const Chunk& chunk : chunks) {
    const auto append = [&](Floats& to, const Floats& from, std::int64_t width) {
      to.insert(to.end(), from.begin() + chunk.begin * width, from.begin() + chunk.end * width);
    };
    append(q, chunk.sequence->q, kHeads * kDim);
    append(k, chunk.sequence->k, kKvHeads * kDim);
    append(v, chunk.sequence->v, kKvHeads * kDim);
    parts.push_back({.cached = chunk.begin, .rows = chunk.end - chunk.begin, .blocks = chunk.sequence->blocks});
    rows += chunk.end - chunk.begin;
  }
  const Batch batch = make_batch(run, parts);
  ops->write_kv(run.exec, pages, run.put_strided({rows, kKvHeads, kDim}, k, 5),
                run.put_strided({rows, kKvHeads, kDim}, v, 2), batch);
  const View out = run.make({rows, kHeads, kDim}, 4);
  ops->attention(run.exec, out, run.put_strided({rows, kHeads, kDim}, q), pages, spec, batch);
  return run.get(out);
}

View fresh_pages(TestExec& run) { return run.make({kPages, 2, kPageSize, kKvHeads * kDim}); }

std::vector<Exact> expected(const Sequence& s, const AttentionSpec& spec) {
  std::vector<Exact> out;
  const std::size_t dim = kDim;
  for (std::int64_t t = 0; t < s.rows; ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t kv = h / (kHeads / kKvHeads),
                         first = spec.window > 0 ? std::max<std::int64_t>(0, t - spec.window + 1) : 0;
      std::vector<double> weight;
      double total = 0;
      for (std::int64_t p = first; p <= t; ++p) {
        double score = 0;
        for (std::size_t i = 0; i < dim; ++i) {
          score += static_cast<double>(s.q[static_cast<std::size_t>((t * kHeads + h) * kDim) + i]) *
                   s.k[static_cast<std::size_t>((p * kKvHeads + kv) * kDim) + i];
        }
        weight.push_back(std::exp(score * spec.scale));
        total += weight.back();
      }
      for (std::size_t i = 0; i < dim; ++i) {
        Exact y;
        for (std::int64_t p = first; p <= t; ++p) {
          y.add(weight[static_cast<std::size_t>(p - first)] / total *
                s.v[static_cast<std::size_t>((p * kKvHeads + kv) * kDim) + i]);
        }
        out.push_back(y);
      }
    }
  }
  return out;
}

Floats rows_of(const Floats& all, std::int64_t begin, std::int64_t end) {
  return Floats(all.begin() + begin * kHeads * kDim, all.begin() + end * kHeads * kDim);
}

TEST(Attention, MatchesDoubleWithAndWithoutWindow) {
  const Sequence s = make_sequence(1, 19, {7, 0, 15, 3, 2});
  for (const std::int64_t window : {0, 1, 5, 64}) {
    const AttentionSpec spec{0.3f, window};
    const Floats got =
        run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&s, 0, 19}}, spec); });
    expect_close(got, expected(s, spec), 1e-5);
  }
}

TEST(Attention, BitsDoNotDependOnChunksOrOtherSequences) {
  const Sequence a = make_sequence(1, 13, {7, 0, 15, 3}), b = make_sequence(11, 6, {1, 2}),
                 c = make_sequence(21, 2, {5});
  for (const std::int64_t window : {0, 6}) {
    const AttentionSpec spec{0.25f, window};
    const Floats whole =
        run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&a, 0, 13}}, spec); });
    const Floats alone_b =
        run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&b, 0, 6}}, spec); });
    run_everywhere([&](TestExec& run) {
      const View pages = fresh_pages(run);
      const Floats first = run_batch(run, pages, {{&a, 0, 5}}, spec);
      const Floats second = run_batch(run, pages, {{&c, 0, 2}, {&a, 5, 6}, {&b, 0, 4}}, spec);
      const Floats third = run_batch(run, pages, {{&b, 4, 6}, {&a, 6, 13}}, spec);
      expect_same_bits(first, rows_of(whole, 0, 5), "first chunk");
      expect_same_bits(rows_of(second, 2, 3), rows_of(whole, 5, 6), "one step among others");
      expect_same_bits(rows_of(third, 2, 9), rows_of(whole, 6, 13), "last chunk");
      expect_same_bits(rows_of(second, 3, 7), rows_of(alone_b, 0, 4), "the other sequence");
      expect_same_bits(rows_of(third, 0, 2), rows_of(alone_b, 4, 6), "the other sequence, later");
      return third;
    });
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Sequence s = make_sequence(1, 5, {0, 1});
  for (float& q : s.q) q *= 1000;
  const Floats got =
      run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&s, 0, 5}}, {1.0f, 0}); });
  for (const float y : got) EXPECT_TRUE(std::fabs(y) <= 1.0f) << y;
}

TEST(Attention, NoRows) {
  EXPECT_TRUE(run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {}, {1.0f, 0}); }).empty());
}

}  // namespace
}  // namespace cadre::test
