// Builds a Batch on a device from sequences as a test thinks of them.
#pragma once

#include "ops/batch.h"
#include "support/exec_fixture.h"

namespace cadre::test {

// Rows [cached, cached + rows) of a sequence.
struct Part {
  std::int32_t cached = 0, rows = 0;
  std::int32_t slot = -1;
  Ints blocks = {};
  std::int32_t state_slot = 0;
  std::int32_t rope_length = 0;
  Ints ids = {};  // empty: zeros
};

inline Batch make_batch(TestExec& run, const std::vector<Part>& parts) {
  Ints ids, positions, sequence, slots, first_row{0}, cached, blocks, state_slot, rope_length, rows;
  std::size_t width = 1;
  for (const Part& part : parts) width = std::max(width, part.blocks.size());
  Batch batch;
  for (const Part& part : parts) {
    for (std::int32_t i = 0; i < part.rows; ++i) {
      ids.push_back(part.ids.empty() ? 0 : part.ids.at(static_cast<std::size_t>(i)));
      positions.push_back(part.cached + i);
      sequence.push_back(static_cast<std::int32_t>(cached.size()));
      slots.push_back(part.slot);
      batch.any_adapter |= part.slot >= 0;
    }
    first_row.push_back(first_row.back() + part.rows);
    if (part.rows > 0) rows.push_back(first_row.back() - 1);
    cached.push_back(part.cached);
    state_slot.push_back(part.state_slot);
    rope_length.push_back(part.rope_length);
    blocks.insert(blocks.end(), part.blocks.begin(), part.blocks.end());
    blocks.resize(cached.size() * width, -1);  // never to be read
  }
  batch.tokens = static_cast<std::int64_t>(ids.size());
  batch.sequences = static_cast<std::int64_t>(parts.size());
  batch.logit_rows = static_cast<std::int64_t>(rows.size());
  batch.ids = run.put(ids);
  batch.positions = run.put(positions);
  batch.sequence = run.put(sequence);
  batch.slots = run.put(slots);
  batch.first_row = run.put(first_row);
  batch.cached = run.put(cached);
  batch.blocks = run.put({batch.sequences, static_cast<std::int64_t>(width)}, blocks);
  batch.state_slot = run.put(state_slot);
  batch.rope_length = run.put(rope_length);
  batch.rows = run.put(rows);
  return batch;
}

}  // namespace cadre::test
