// The table that kernels read: slot -> {A, B, rank, scale}. It lies at a fixed device address and is rewritten between
// batches only.
#pragma once

#include "lora/canonical.h"
#include "tensor/device.h"

namespace cadre {

// One entry as a kernel sees it. Dense: A [rank, in], B [out, rank], replacement [out, in], all row-major.
// Null pointers and rank 0: nothing here.
struct LoraEntry {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* replacement = nullptr;
  std::int32_t rank = 0;
  float scale = 0;
  DType a_dtype = DType::kF32, b_dtype = DType::kF32, replacement_dtype = DType::kF32;
};

// [slots, width] entries: width is 1 for a Linear and 3 * experts (gate, up, down) for experts.
class LoraTable {
 public:
  static Result<LoraTable> make(Device& device, Stream& stream, int slots, int width);
  LoraTable() = default;

  // Packs the terms (at most `width`, with rank 0 where empty) into dense device memory and makes them visible.
  // Terms that share a view share the packed copy. Between batches only.
  Status set(Device& device, Stream& stream, int slot, const std::vector<LowRank>& terms, const View& replacement = {});
  void clear(Device& device, Stream& stream, int slot);

  int slots() const { return slots_; }
  int width() const { return width_; }
  bool used() const;                                                                          // any slot set
  const LoraEntry* entries() const { return static_cast<const LoraEntry*>(memory_.data()); }  // device address

 private:
  int slots_ = 0, width_ = 0;
  Buffer memory_;
  std::vector<std::vector<Buffer>> packed_;  // by slot
};

}  // namespace cadre
