// The adapters of one layer in packed form, by slot: the table that the kernel reads.
#pragma once

#include "lora/canonical.h"
#include "moe/experts/cpu_vector/pack.h"
#include "tensor/device.h"

namespace cadre::cpu_vector {

enum Part { kGatePart, kUpPart, kDownPart, kParts };

// A [rank, in] packed by kRankBlock columns (its rows) over the padded input; B [out, rank] by kBlock over an even
// rank. Rank 0: nothing here.
struct PackedTerm {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::int32_t rank = 0;
  float scale = 0;
  PackedType a_type = PackedType::kF32, b_type = PackedType::kF32;

  bool same_shrink(const PackedTerm& other) const { return a == other.a && rank == other.rank && scale == other.scale; }
};

class PackedAdapters {
 public:
  // `in` of gate and up, and of down, as the kernel pads them.
  static Result<PackedAdapters> make(Device& device, Stream& stream, int slots, std::int64_t experts,
                                     std::int64_t width, std::int64_t intermediate);
  PackedAdapters() = default;

  // terms [kParts * experts], already cut to this rank's share. Terms that share a view share the packed copy. Between
  // batches only.
  Status set(Device& device, Stream& stream, int slot, const std::vector<LowRank>& terms);
  void clear(Device& device, Stream& stream, int slot);

  int slots() const { return static_cast<int>(packed_.size()); }
  const PackedTerm* terms() const { return static_cast<const PackedTerm*>(table_.data()); }  // device address

 private:
  std::size_t row() const { return static_cast<std::size_t>(kParts * experts_); }
  void write(Device& device, Stream& stream, int slot, const std::vector<PackedTerm>& row);

  std::int64_t experts_ = 0, in_[kParts] = {};
  Buffer table_;
  std::vector<std::vector<Buffer>> packed_;  // by slot
};

}  // namespace cadre::cpu_vector
