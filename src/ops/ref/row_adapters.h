// Which adapter a row of a batch uses, for ops with a weight that adapters add to. Read inside closures only.
#pragma once

#include "lora/table.h"
#include "ops/ref/access.h"

namespace cadre {

struct RowAdapters {
  const LoraEntry* entries = nullptr;  // null: no row has one
  int slots = 0;
  View slot_of;  // int32 [T]

  RowAdapters(const LoraTable* lora, const View& slots_of_rows) {
    if (lora == nullptr) return;
    entries = lora->entries();
    slots = lora->slots();
    slot_of = slots_of_rows;
  }

  const LoraEntry* of(std::int64_t t) const {
    if (entries == nullptr) return nullptr;
    const std::int64_t slot = index_at(slot_of, t);
    CADRE_CHECK(slot < slots, "no such adapter slot");
    return slot < 0 ? nullptr : &entries[slot];
  }
};

}  // namespace cadre
