#include <cstring>
#include <vector>

#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {

void ReferenceOps::embed(const Exec& exec, View out, View table, const Batch& batch, const LoraTable* lora) const {
  const std::int64_t tokens = batch.tokens, vocabulary = table.dim(0), width = table.dim(1);
  CADRE_CHECK(is_weight(table, {vocabulary, width}), "embed: table is not [V, H] of a weight type");
  CADRE_CHECK(is_activation(out, {tokens, width}), "embed: out is not float32 [T, H]");
  CADRE_CHECK(is_index(batch.ids, tokens), "embed: ids are not int32 [T]");
  CADRE_CHECK(lora == nullptr || (lora->width() == 1 && is_index(batch.slots, tokens)),
              "embed: adapters without slots");
  const LoraEntry* entries = lora == nullptr ? nullptr : lora->entries();
  const int slot_count = lora == nullptr ? 0 : lora->slots();

  exec.launch([=, ids = batch.ids, slots = batch.slots, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      static thread_local std::vector<float> shrunk;
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t id = index_at(ids, t);
        CADRE_CHECK(id >= 0 && id < vocabulary, "embed: token id outside the table");
        const std::int64_t slot = entries == nullptr ? -1 : index_at(slots, t);
        CADRE_CHECK(slot < slot_count, "embed: no such adapter slot");
        const LoraEntry* entry = slot < 0 ? nullptr : &entries[slot];

        const bool replaced = entry != nullptr && entry->replacement != nullptr;
        const DType dtype = replaced ? entry->replacement_dtype : table.dtype;
        const void* source = replaced ? advance(entry->replacement, dtype, id * width) : weight_row(table, id);
        float* y = row(out, t);
        widen(source, dtype, width, y);

        if (entry == nullptr || entry->rank == 0) continue;
        shrunk.resize(static_cast<std::size_t>(entry->rank));
        for (std::int64_t r = 0; r < entry->rank; ++r) {
          shrunk[static_cast<std::size_t>(r)] = entry->scale * element(entry->a, entry->a_dtype, r * vocabulary + id);
        }
        for (std::int64_t h = 0; h < width; ++h) {
          y[h] += dot(advance(entry->b, entry->b_dtype, h * entry->rank), entry->b_dtype, shrunk.data(), entry->rank);
        }
      }
    });
  });
}

void ReferenceOps::gather_rows(const Exec& exec, View out, View x, View rows) const {
  const std::int64_t count = out.dim(0), width = x.rank == 1 ? 1 : x.dim(1);
  CADRE_CHECK(x.rank == out.rank && (x.rank == 1 || (x.rank == 2 && out.dim(1) == width)),
              "gather_rows: shapes differ");
  CADRE_CHECK(x.dtype == out.dtype && dtype_bits(x.dtype) == 32, "gather_rows: not one type of 32 bits");
  CADRE_CHECK(x.rank == 1 || (unit_last(x) && unit_last(out)), "gather_rows: rows are not contiguous");
  CADRE_CHECK(is_index(rows, count), "gather_rows: rows are not int32 [L]");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(count, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t from = index_at(rows, i);
        CADRE_CHECK(from >= 0 && from < x.dim(0), "gather_rows: row outside the input");
        std::memcpy(row(out, i), row(x, from), static_cast<std::size_t>(width) * sizeof(float));
      }
    });
  });
}

}  // namespace cadre
