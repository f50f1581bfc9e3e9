// Latent attention against the plain form in double precision: keys and values of every token expanded by kv_b_proj
// with its adapter added, then ordinary attention.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/batch_builder.h"

namespace cadre::test {
namespace {

constexpr std::int64_t kHeads = 6, kNope = 7, kRope = 4, kValue = 5, kRank = 20, kPageSize = 4, kPages = 32;
constexpr std::int64_t kHeadRows = kNope + kValue, kOut = kHeads * kHeadRows;
constexpr float kScale = 0.3f;

struct Term {
  int rank;
  float scale;
  Floats a, b;  // [rank, R], [out, rank]
};

Term make_term(DType dtype, unsigned seed, int rank, float scale) {
  return {rank, scale, random_weights(dtype, seed, rank * kRank), random_weights(dtype, seed + 1, kOut * rank)};
}

// One sequence of n rows, whole; all its rows use one adapter slot.
struct Sequence {
  std::int64_t rows;
  Floats q, q_rope, latent;  // [n, heads, nope], [n, heads, rope], [n, R + rope]
  Ints blocks;
  std::int32_t slot;
};

Sequence make_sequence(unsigned seed, std::int64_t rows, Ints blocks, std::int32_t slot = -1) {
  return {rows,
          random_floats(seed, rows * kHeads * kNope, 2),
          random_floats(seed + 1, rows * kHeads * kRope, 2),
          random_floats(seed + 2, rows * (kRank + kRope)),
          std::move(blocks),
          slot};
}

struct Weights {
  DType dtype = DType::kF32;
  Floats base;               // [out, R]
  std::vector<Term> terms;   // of slot 0, 1, ...
  Floats replacement;        // of the slot after them, where there is one
  bool use_adapters = true;  // whether the ops are given the table
};

Weights make_weights(DType dtype) {
  return {dtype,
          random_weights(dtype, 900, kOut * kRank),
          {make_term(dtype, 910, 1, 1.5f), make_term(DType::kF32, 920, 33, -0.2f)},
          random_weights(DType::kBF16, 930, kOut * kRank)};
}

// The double-precision weight that rows of a slot see.
std::vector<double> effective(const Weights& w, std::int32_t slot) {
  const bool replaced = slot == static_cast<std::int32_t>(w.terms.size());
  const Floats& from = replaced ? w.replacement : w.base;
  std::vector<double> out(from.begin(), from.end());
  if (slot < 0 || replaced) return out;
  const Term& term = w.terms[static_cast<std::size_t>(slot)];
  for (std::int64_t n = 0; n < kOut; ++n) {
    for (std::int64_t k = 0; k < kRank; ++k) {
      for (std::int64_t r = 0; r < term.rank; ++r) {
        out[static_cast<std::size_t>(n * kRank + k)] += static_cast<double>(term.scale) *
                                                        term.b[static_cast<std::size_t>(n * term.rank + r)] *
                                                        term.a[static_cast<std::size_t>(r * kRank + k)];
      }
    }
  }
  return out;
}

std::vector<double> expected(const Sequence& s, const Weights& weights) {
  const std::vector<double> w = effective(weights, s.slot);
  // Row `i` of head h of what kv_b_proj makes of token p.
  const auto expanded = [&](std::int64_t p, std::int64_t h, std::int64_t i) {
    double sum = 0;
    for (std::int64_t k = 0; k < kRank; ++k) {
      sum += w[static_cast<std::size_t>((h * kHeadRows + i) * kRank + k)] *
             s.latent[static_cast<std::size_t>(p * (kRank + kRope) + k)];
    }
    return sum;
  };
  std::vector<double> out;
  for (std::int64_t t = 0; t < s.rows; ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      std::vector<double> weight;
      double total = 0;
      for (std::int64_t p = 0; p <= t; ++p) {
        double score = 0;
        for (std::int64_t i = 0; i < kNope; ++i) {
          score += s.q[static_cast<std::size_t>((t * kHeads + h) * kNope + i)] * expanded(p, h, i);
        }
        for (std::int64_t i = 0; i < kRope; ++i) {
          score += static_cast<double>(s.q_rope[static_cast<std::size_t>((t * kHeads + h) * kRope + i)]) *
                   s.latent[static_cast<std::size_t>(p * (kRank + kRope) + kRank + i)];
        }
        weight.push_back(std::exp(score * static_cast<double>(kScale)));
        total += weight.back();
      }
      for (std::int64_t i = 0; i < kValue; ++i) {
        double y = 0;
        for (std::int64_t p = 0; p <= t; ++p) {
          y += weight[static_cast<std::size_t>(p)] / total * expanded(p, h, kNope + i);
        }
        out.push_back(y);
      }
    }
  }
  return out;
}

struct Chunk {
  const Sequence* sequence;
  std::int32_t begin, end;
};

View fresh_pages(TestExec& run) { return run.make({kPages, kPageSize, kRank + kRope}); }

// One batch on pages that are NaN where nothing was written; rows [T, heads, value] in the order of the chunks.
Floats run_batch(TestExec& run, const View& pages, const std::vector<Chunk>& chunks, const Weights& weights) {
  const auto ops = make_reference_ops();
  LoraTable table = run.lora_table(static_cast<int>(weights.terms.size()) + 1, 1);
  int slot = 0;
  for (const Term& t : weights.terms) {
    const DType dtype = t.rank > 1 ? DType::kF32 : weights.dtype;
    run.set(table, slot++, {{run.host(dtype, {t.rank, kRank}, t.a), run.host(dtype, {kOut, t.rank}, t.b), t.scale}});
  }
  run.set(table, slot, {}, run.host(DType::kBF16, {kOut, kRank}, weights.replacement));
  const LoraTable* lora = weights.use_adapters ? &table : nullptr;

  std::vector<Part> parts;
  Floats q, q_rope, latent;
  std::int64_t rows = 0;
  for (const auto& [s, begin, end] : chunks) {
    const auto append = [first = begin, last = end](Floats& to, const Floats& from, std::int64_t width) {
      to.insert(to.end(), from.begin() + first * width, from.begin() + last * width);
    };
    append(q, s->q, kHeads * kNope);
    append(q_rope, s->q_rope, kHeads * kRope);
    append(latent, s->latent, kRank + kRope);
    parts.push_back({.cached = begin, .rows = end - begin, .slot = s->slot, .blocks = s->blocks});
    rows += end - begin;
  }
  const Batch batch = make_batch(run, parts);
  const View weight = run.put_strided(weights.dtype, {kOut, kRank}, weights.base, 3);
  ops->write_latent(run.exec, pages, run.put_strided({rows, kRank + kRope}, latent, 5), batch);
  const View mixed = run.make({rows, kHeads, kRank}, 2), out = run.make({rows, kHeads, kValue}, 4);
  ops->absorb_heads(run.exec, mixed, run.put_strided({rows, kHeads, kNope}, q), weight, 0, lora, batch.slots);
  ops->latent_attention(run.exec, mixed, mixed, run.put_strided({rows, kHeads, kRope}, q_rope), pages, kScale, batch);
  ops->expand_heads(run.exec, out, mixed, weight, kNope, lora, batch.slots);
  return run.get(out);
}

Floats rows_of(const Floats& all, std::int64_t begin, std::int64_t end) {
  return Floats(all.begin() + begin * kHeads * kValue, all.begin() + end * kHeads * kValue);
}

void expect_near(const Floats& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  EXPECT_LE(std::sqrt(difference / norm), 3e-6);
}

TEST(LatentAttention, MatchesExpandedKeysAndValues) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Weights weights = make_weights(dtype);
    for (const std::int32_t slot : {-1, 0, 1, 2}) {  // the base, two adapters, a replacement
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", slot " + std::to_string(slot));
      const Sequence s = make_sequence(1, 19, {7, 0, 15, 3, 2}, slot);
      const Floats got =
          run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&s, 0, 19}}, weights); });
      expect_near(got, expected(s, weights));
    }
  }
}

// More rows than one pass over a head's weights serves, and a last block of one row.
TEST(LatentAttention, ManyRows) {
  const Weights weights = make_weights(DType::kBF16);
  Ints blocks;
  for (std::int32_t i = 0; i < 17; ++i) blocks.push_back(31 - i);
  const Sequence s = make_sequence(5, 65, blocks, 1);
  const Floats got =
      run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&s, 0, 65}}, weights); });
  expect_near(got, expected(s, weights));
}

// Promise (c), and (b) as well: the base rows among rows with adapters have the bits they have without any.
TEST(LatentAttention, BitsDoNotDependOnChunksOrOtherRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Weights weights = make_weights(dtype);
    Weights without = weights;
    without.use_adapters = false;
    const Sequence a = make_sequence(1, 13, {7, 0, 15, 3}), b = make_sequence(11, 6, {1, 2}, 1),
                   c = make_sequence(21, 2, {5}, 2);
    const auto alone = [&](const Sequence& s, const Weights& w) {
      return run_everywhere([&](TestExec& run) {
        return run_batch(run, fresh_pages(run), {{&s, 0, static_cast<std::int32_t>(s.rows)}}, w);
      });
    };
    const Floats whole = alone(a, without), alone_b = alone(b, weights);
    EXPECT_NE(alone_b, alone(b, without)) << "the adapter changes nothing";
    run_everywhere([&](TestExec& run) {
      const View pages = fresh_pages(run);
      const Floats first = run_batch(run, pages, {{&a, 0, 5}}, weights);
      const Floats second = run_batch(run, pages, {{&c, 0, 2}, {&a, 5, 6}, {&b, 0, 4}}, weights);
      const Floats third = run_batch(run, pages, {{&b, 4, 6}, {&a, 6, 13}}, weights);
      expect_same_bits(first, rows_of(whole, 0, 5), "first chunk");
      expect_same_bits(rows_of(second, 2, 3), rows_of(whole, 5, 6), "one step among others");
      expect_same_bits(rows_of(third, 2, 9), rows_of(whole, 6, 13), "last chunk");
      expect_same_bits(rows_of(second, 3, 7), rows_of(alone_b, 0, 4), "the other sequence");
      expect_same_bits(rows_of(third, 0, 2), rows_of(alone_b, 4, 6), "the other sequence, later");
      return third;
    });
  }
}

TEST(LatentAttention, LargeScoresDoNotOverflow) {
  const Weights weights = make_weights(DType::kF32);
  Sequence s = make_sequence(1, 5, {0, 1});
  for (float& q : s.q) q *= 1000;
  const Floats got =
      run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {{&s, 0, 5}}, weights); });
  for (const float y : got) EXPECT_TRUE(std::isfinite(y)) << y;
}

TEST(LatentAttention, NoRows) {
  const Weights weights = make_weights(DType::kF32);
  EXPECT_TRUE(run_everywhere([&](TestExec& run) { return run_batch(run, fresh_pages(run), {}, weights); }).empty());
}

}  // namespace
}  // namespace cadre::test
