// Hashing for the vocabulary and the merges. Seeded for each process: keys come from files, and a file must not be able
// to choose keys that collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace cadre::text {

std::uint64_t hash_seed();

inline std::uint64_t hash_mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) {
  constexpr std::uint64_t kOdd1 = 0x9E3779B97F4A7C15ULL;
  constexpr std::uint64_t kOdd2 = 0xD6E8FEB86659FD93ULL;
  std::uint64_t hash = seed ^ (bytes.size() * kOdd1);
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    hash = hash_mix(hash ^ word, kOdd2 ^ seed);
  }
  std::uint64_t word = 0;
  if (left != 0) std::memcpy(&word, p, left);
  return hash_mix(hash ^ word, kOdd1 ^ (seed << 1 | 1));
}

// Pairs of token ids to the rank of their merge and the token it makes. Open addressing, at most half full.
class PairMap {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t id;
  };

  void reserve(std::size_t count);
  void put(std::int32_t left, std::int32_t right, Merge merge);  // the later one wins
  const Merge* find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return nullptr;
    const std::uint64_t key = make_key(left, right);
    for (std::size_t at = start(key);; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return &slots_[at].merge;
      if (slots_[at].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~0ULL;  // no id is negative, so no pair has this key
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge{0, 0};
  };
  static std::uint64_t make_key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t start(std::uint64_t key) const {
    return static_cast<std::size_t>(hash_mix(key ^ seed_, 0x9E3779B97F4A7C15ULL)) & mask_;
  }
  void grow(std::size_t slots);

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  std::size_t used_ = 0;
  std::uint64_t seed_ = hash_seed();
};

}  // namespace cadre::text
