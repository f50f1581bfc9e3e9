// Multi-head latent attention, absorbed: the cache holds one vector for each token that all heads share, and the
// projection that would make keys and values of it is applied to queries and results instead.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/ref/paged.h"
#include "ops/ref/reference_ops.h"
#include "ops/ref/row_adapters.h"

namespace cadre {
namespace {

// Rows of the batch that one pass over a head's weights serves.
constexpr std::int64_t kRowBlock = 64;
// Heads that share one pass over the cache: a token's vector is read from memory once for all of them.
constexpr std::int64_t kHeadBlock = 4;

// One head's part of a projection's rows: row i of head h is i + offset + h * stride.
struct HeadRows {
  View weight;  // [heads * stride, R]
  std::int64_t offset = 0, stride = 0, rank = 0;

  std::int64_t index(std::int64_t head, std::int64_t i) const { return head * stride + offset + i; }
};

HeadRows head_rows(const View& weight, std::int64_t heads, std::int64_t offset, std::int64_t count) {
  CADRE_CHECK(
      weight.rank == 2 && is_weight(weight, {weight.dim(0), weight.dim(1)}) && heads > 0 && weight.dim(0) % heads == 0,
      "latent: weight is not [heads * P, R] of a weight type");
  const std::int64_t stride = weight.dim(0) / heads;
  CADRE_CHECK(offset >= 0 && offset + count <= stride, "latent: rows outside a head's part of the weight");
  return {weight, offset, stride, weight.dim(1)};
}

// Runs work(head, first row, last row) over all heads and blocks of rows.
template <class Work>
void for_heads(ThreadPool& threads, std::int64_t tokens, std::int64_t heads, const Work& work) {
  const std::int64_t blocks = (tokens + kRowBlock - 1) / kRowBlock;
  threads.parallel_for(blocks * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t first = item / heads * kRowBlock;
      work(item % heads, first, std::min(tokens, first + kRowBlock));
    }
  });
}

// A head's rows for several rows of the batch, widened once: the same numbers in the same order, so the same bits.
struct Widened {
  std::vector<float> memory;

  void take(const HeadRows& rows, std::int64_t head, std::int64_t count, std::int64_t batch_rows) {
    memory.clear();
    if (rows.weight.dtype == DType::kF32 || batch_rows < 2) return;
    memory.resize(static_cast<std::size_t>(count * rows.rank));
    for (std::int64_t i = 0; i < count; ++i) {
      widen(weight_row(rows.weight, rows.index(head, i)), rows.weight.dtype, rows.rank, memory.data() + i * rows.rank);
    }
  }
};

struct WeightRow {
  const void* data = nullptr;
  DType dtype = DType::kF32;
};

// Row i of a head as a row of the batch sees it: its adapter's replacement, or the base weight.
WeightRow weight_for(const HeadRows& rows, const Widened& wide, const LoraEntry* entry, std::int64_t head,
                     std::int64_t i) {
  if (entry != nullptr && entry->replacement != nullptr) {
    return {advance(entry->replacement, entry->replacement_dtype, rows.index(head, i) * rows.rank),
            entry->replacement_dtype};
  }
  if (!wide.memory.empty()) return {wide.memory.data() + i * rows.rank, DType::kF32};
  return {weight_row(rows.weight, rows.index(head, i)), rows.weight.dtype};
}

const void* b_row(const LoraEntry& entry, std::int64_t index) {
  return advance(entry.b, entry.b_dtype, index * entry.rank);
}
const void* a_row(const LoraEntry& entry, std::int64_t r, std::int64_t in) {
  return advance(entry.a, entry.a_dtype, r * in);
}

}  // namespace

void ReferenceOps::absorb_heads(const Exec& exec, View out, View x, View weight, std::int64_t offset,
                                const LoraTable* lora, View slots) const {
  const std::int64_t tokens = x.dim(0), heads = x.dim(1), count = x.dim(2);
  const HeadRows rows = head_rows(weight, heads, offset, count);
  CADRE_CHECK(is_activation(x, {tokens, heads, count}), "absorb_heads: x is not float32 [T, heads, D]");
  CADRE_CHECK(is_activation(out, {tokens, heads, rows.rank}), "absorb_heads: out is not float32 [T, heads, R]");
  CADRE_CHECK(lora == nullptr || (lora->width() == 1 && is_index(slots, tokens)), "absorb_heads: no slots");

  exec.launch([=, adapters = RowAdapters(lora, slots), threads = exec.threads] {
    for_heads(*threads, tokens, heads, [&](std::int64_t h, std::int64_t first, std::int64_t last) {
      static thread_local Widened wide;
      static thread_local std::vector<float> shrunk;
      wide.take(rows, h, count, last - first);
      for (std::int64_t t = first; t < last; ++t) {
        const LoraEntry* entry = adapters.of(t);
        const float* from = row(x, t, h);
        float* to = row(out, t, h);
        std::fill_n(to, rows.rank, 0.0f);
        for (std::int64_t i = 0; i < count; ++i) {
          const WeightRow w = weight_for(rows, wide, entry, h, i);
          axpy(from[i], w.data, w.dtype, to, rows.rank);
        }
        if (entry == nullptr || entry->rank == 0) continue;
        shrunk.assign(static_cast<std::size_t>(entry->rank), 0.0f);
        for (std::int64_t i = 0; i < count; ++i) {
          axpy(from[i], b_row(*entry, rows.index(h, i)), entry->b_dtype, shrunk.data(), entry->rank);
        }
        for (std::int64_t r = 0; r < entry->rank; ++r) {
          axpy(entry->scale * shrunk[static_cast<std::size_t>(r)], a_row(*entry, r, rows.rank), entry->a_dtype, to,
               rows.rank);
        }
      }
    });
  });
}

void ReferenceOps::expand_heads(const Exec& exec, View out, View x, View weight, std::int64_t offset,
                                const LoraTable* lora, View slots) const {
  const std::int64_t tokens = out.dim(0), heads = out.dim(1), count = out.dim(2);
  const HeadRows rows = head_rows(weight, heads, offset, count);
  CADRE_CHECK(is_activation(out, {tokens, heads, count}), "expand_heads: out is not float32 [T, heads, D]");
  CADRE_CHECK(is_activation(x, {tokens, heads, rows.rank}), "expand_heads: x is not float32 [T, heads, R]");
  CADRE_CHECK(lora == nullptr || (lora->width() == 1 && is_index(slots, tokens)), "expand_heads: no slots");

  exec.launch([=, adapters = RowAdapters(lora, slots), threads = exec.threads] {
    for_heads(*threads, tokens, heads, [&](std::int64_t h, std::int64_t first, std::int64_t last) {
      static thread_local Widened wide;
      static thread_local std::vector<float> shrunk;
      wide.take(rows, h, count, last - first);
      for (std::int64_t t = first; t < last; ++t) {
        const LoraEntry* entry = adapters.of(t);
        const float* from = row(x, t, h);
        float* to = row(out, t, h);
        for (std::int64_t i = 0; i < count; ++i) {
          const WeightRow w = weight_for(rows, wide, entry, h, i);
          to[i] = dot(w.data, w.dtype, from, rows.rank);
        }
        if (entry == nullptr || entry->rank == 0) continue;
        shrunk.resize(static_cast<std::size_t>(entry->rank));
        for (std::int64_t r = 0; r < entry->rank; ++r) {
          shrunk[static_cast<std::size_t>(r)] =
              entry->scale * dot(a_row(*entry, r, rows.rank), entry->a_dtype, from, rows.rank);
        }
        for (std::int64_t i = 0; i < count; ++i) {
          to[i] += dot(b_row(*entry, rows.index(h, i)), entry->b_dtype, shrunk.data(), entry->rank);
        }
      }
    });
  });
}

namespace {

// The pages of one layer's latent cache and which of them belong to whom.
struct LatentCache {
  View pages;  // float32 [pages, page_size, width]
  BlockTable table;

  LatentCache(const View& all, const Batch& batch) : pages(all), table(batch, all.dim(0), all.dim(1)) {
    CADRE_CHECK(pages.rank == 3 && pages.dtype == DType::kF32 && unit_last(pages),
                "latent pages are not float32 [pages, page_size, width]");
  }

  float* at(std::int64_t sequence, std::int64_t position) const {
    return ptr<float>(pages) + table.page(sequence, position) * pages.step(0) +
           position % table.page_size * pages.step(1);
  }
};

}  // namespace

void ReferenceOps::write_latent(const Exec& exec, View pages, View x, const Batch& batch) const {
  const LatentCache cache(pages, batch);
  const std::int64_t tokens = batch.tokens, width = pages.dim(2);
  CADRE_CHECK(is_activation(x, {tokens, width}), "write_latent: x is not float32 [T, width of the pages]");

  exec.launch([=, positions = batch.positions, sequence = batch.sequence, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        std::memcpy(cache.at(index_at(sequence, t), index_at(positions, t)), row(x, t),
                    static_cast<std::size_t>(width) * sizeof(float));
      }
    });
  });
}

void ReferenceOps::latent_attention(const Exec& exec, View out, View q, View q_rope, View pages, float scale,
                                    const Batch& batch) const {
  const LatentCache cache(pages, batch);
  const std::int64_t tokens = batch.tokens, heads = q.dim(1), rank = q.dim(2), rope = q_rope.dim(2);
  CADRE_CHECK(is_activation(q, {tokens, heads, rank}), "latent_attention: q is not float32 [T, heads, R]");
  CADRE_CHECK(is_activation(q_rope, {tokens, heads, rope}), "latent_attention: q_rope is not float32 [T, heads, P]");
  CADRE_CHECK(is_activation(out, {tokens, heads, rank}), "latent_attention: out differs from q");
  CADRE_CHECK(pages.dim(2) == rank + rope, "latent_attention: pages have another width");

  const std::int64_t blocks = (heads + kHeadBlock - 1) / kHeadBlock;
  exec.launch([=, positions = batch.positions, sequence = batch.sequence, threads = exec.threads] {
    threads->parallel_for(tokens * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      static thread_local std::vector<float> scores;  // [heads of the block, length]
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t t = item / blocks, h0 = item % blocks * kHeadBlock;
        const std::int64_t count = std::min(kHeadBlock, heads - h0);
        const std::int64_t s = index_at(sequence, t), length = index_at(positions, t) + 1;
        scores.resize(static_cast<std::size_t>(kHeadBlock * length));
        for (std::int64_t p = 0; p < length; ++p) {
          const float* latent = cache.at(s, p);
          for (std::int64_t j = 0; j < count; ++j) {
            scores[static_cast<std::size_t>(j * length + p)] =
                (dot(latent, DType::kF32, row(q, t, h0 + j), rank) +
                 dot(latent + rank, DType::kF32, row(q_rope, t, h0 + j), rope)) *
                scale;
          }
        }
        // From here on q is not read, so out may lie in its place.
        float top[kHeadBlock], total[kHeadBlock];
        for (std::int64_t j = 0; j < count; ++j) {
          const float* first = scores.data() + j * length;
          top[j] = *std::max_element(first, first + length);
          total[j] = 0;
          std::fill_n(row(out, t, h0 + j), rank, 0.0f);
        }
        for (std::int64_t p = 0; p < length; ++p) {
          const float* latent = cache.at(s, p);
          for (std::int64_t j = 0; j < count; ++j) {
            const float weight = std::exp(scores[static_cast<std::size_t>(j * length + p)] - top[j]);
            total[j] += weight;
            axpy(weight, latent, DType::kF32, row(out, t, h0 + j), rank);
          }
        }
        for (std::int64_t j = 0; j < count; ++j) {
          float* y = row(out, t, h0 + j);
          for (std::int64_t i = 0; i < rank; ++i) y[i] /= total[j];
        }
      }
    });
  });
}

}  // namespace cadre
