#include "text/tokenizer/flat_hash.h"

#include <bit>
#include <random>

namespace cadre::text {

std::uint64_t hash_seed() {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return static_cast<std::uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

void PairMap::grow(std::size_t slots) {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(slots, Slot{});
  mask_ = slots - 1;
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    std::size_t at = start(slot.key);
    while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

void PairMap::reserve(std::size_t count) {
  const std::size_t slots = std::bit_ceil(count * 2 + 16);
  if (slots > slots_.size()) grow(slots);
}

void PairMap::put(std::int32_t left, std::int32_t right, Merge merge) {
  if ((used_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 16 : slots_.size() * 2);
  const std::uint64_t key = make_key(left, right);
  std::size_t at = start(key);
  while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
  if (slots_[at].key == kEmpty) ++used_;
  slots_[at] = {key, merge};
}

}  // namespace cadre::text
