#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/ref/paged.h"
#include "ops/ref/reference_ops.h"

namespace cadre {
namespace {

// The pages of one layer and which of them belong to whom.
struct Cache {
  View pages;  // float32 [pages, 2, page_size, kv_heads * head_dim]
  BlockTable table;

  Cache(const View& all, const Batch& batch) : pages(all), table(batch, all.dim(0), all.dim(2)) {
    CADRE_CHECK(pages.rank == 4 && pages.dtype == DType::kF32 && pages.dim(1) == 2 && unit_last(pages),
                "pages are not float32 [pages, 2, page_size, kv_heads * head_dim]");
  }

  // Keys (0) or values (1) of one position, all heads.
  float* at(std::int64_t sequence, std::int64_t position, std::int64_t which) const {
    return ptr<float>(pages) + table.page(sequence, position) * pages.step(0) + which * pages.step(1) +
           position % table.page_size * pages.step(2);
  }
};

}  // namespace

void ReferenceOps::write_kv(const Exec& exec, View pages, View k, View v, const Batch& batch) const {
  const Cache cache(pages, batch);
  const std::int64_t tokens = batch.tokens, heads = k.dim(1), dim = k.dim(2);
  CADRE_CHECK(is_activation(k, {tokens, heads, dim}), "write_kv: k is not float32 [T, kv_heads, D]");
  CADRE_CHECK(is_activation(v, {tokens, heads, dim}), "write_kv: v differs from k");
  CADRE_CHECK(pages.dim(3) == heads * dim, "write_kv: pages have another width");

  exec.launch([=, positions = batch.positions, sequence = batch.sequence, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(2 * heads * dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (const std::int64_t which : {0, 1}) {
          float* to = cache.at(index_at(sequence, t), index_at(positions, t), which);
          for (std::int64_t h = 0; h < heads; ++h) {
            std::memcpy(to + h * dim, row(which == 0 ? k : v, t, h), static_cast<std::size_t>(dim) * sizeof(float));
          }
        }
      }
    });
  });
}

void ReferenceOps::attention(const Exec& exec, View out, View q, View pages, const AttentionSpec& spec,
                             const Batch& batch) const {
  const Cache cache(pages, batch);
  const std::int64_t tokens = batch.tokens, heads = q.dim(1), dim = q.dim(2);
  CADRE_CHECK(is_activation(q, {tokens, heads, dim}), "attention: q is not float32 [T, heads, D]");
  CADRE_CHECK(is_activation(out, {tokens, heads, dim}), "attention: out differs from q");
  CADRE_CHECK(dim > 0 && pages.dim(3) % dim == 0, "attention: pages have another head width");
  const std::int64_t kv_heads = pages.dim(3) / dim;
  CADRE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention: heads are not a multiple of kv heads");
  const std::int64_t share = heads / kv_heads;
  CADRE_CHECK(!spec.sinks.defined() || is_weight(spec.sinks, {heads}), "attention: sinks are not [heads]");

  exec.launch([=, positions = batch.positions, sequence = batch.sequence, threads = exec.threads] {
    threads->parallel_for(tokens * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      static thread_local std::vector<float> scores;
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t t = item / heads, h = item % heads, offset = h / share * dim;
        const std::int64_t s = index_at(sequence, t), last = index_at(positions, t);
        std::int64_t first = spec.window > 0 ? std::max<std::int64_t>(0, last - spec.window + 1) : 0;
        if (spec.chunk > 0) first = std::max(first, last / spec.chunk * spec.chunk);
        scores.resize(static_cast<std::size_t>(last - first + 1));

        const bool sink = spec.sinks.defined();
        const float sink_score = sink ? element(spec.sinks.data, spec.sinks.dtype, h) : 0;
        float top = sink ? sink_score : -std::numeric_limits<float>::infinity();
        for (std::int64_t p = first; p <= last; ++p) {
          float score = dot(cache.at(s, p, 0) + offset, DType::kF32, row(q, t, h), dim) * spec.scale;
          if (spec.softcap > 0) score = spec.softcap * std::tanh(score / spec.softcap);
          scores[static_cast<std::size_t>(p - first)] = score;
          top = std::max(top, score);
        }
        float* y = row(out, t, h);
        std::fill_n(y, dim, 0.0f);
        float total = 0;
        for (std::int64_t p = first; p <= last; ++p) {
          const float weight = std::exp(scores[static_cast<std::size_t>(p - first)] - top);
          total += weight;
          axpy(weight, cache.at(s, p, 1) + offset, DType::kF32, y, dim);
        }
        if (sink) total += std::exp(sink_score - top);
        for (std::int64_t i = 0; i < dim; ++i) y[i] /= total;
      }
    });
  });
}

}  // namespace cadre
