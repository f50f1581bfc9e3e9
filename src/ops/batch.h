// Batch: one ragged batch as ops see it. Prefill chunks and decode steps mix; a sequence is a run of rows.
#pragma once

#include "tensor/view.h"

namespace cadre {

// Counts live on the host, arrays on the device. Row t belongs to sequence `sequence[t]`; rows of a sequence are
// consecutive and in order of position.
struct Batch {
  std::int64_t tokens = 0;      // T rows
  std::int64_t sequences = 0;   // S
  std::int64_t logit_rows = 0;  // L rows whose logits are wanted
  bool any_adapter = false;     // whether any row has a slot >= 0

  View ids;          // int32 [T] token ids
  View positions;    // int32 [T] absolute position of the row in its sequence
  View sequence;     // int32 [T]
  View slots;        // int32 [T] adapter slot, -1 for the base model
  View first_row;    // int32 [S + 1] first row of each sequence
  View cached;       // int32 [S] tokens of the sequence already in the cache; 0 starts from empty state
  View blocks;       // int32 [S, B] pages of the key-value cache, in order
  View state_slot;   // int32 [S] slot of the recurrent state
  View rope_length;  // int32 [S] total length that length-dependent rotary embeddings are computed for
  View rows;         // int32 [L] rows whose logits are wanted
  View row_slots;    // int32 [L] their adapter slots
};

}  // namespace cadre
