// Byte-pair encoding: characters first, then the merge of lowest rank, leftmost first, until none applies.
#pragma once

#include <cadre/status.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/flat_hash.h"
#include "text/tokenizer/vocab.h"

namespace cadre::text {

struct BpeOptions {
  bool byte_fallback = false;
  bool fuse_unk = false;
  bool ignore_merges = false;  // a piece that is a token as a whole is that token
  std::string unk_token;       // empty: characters without a token are dropped
};

// What encoding needs besides the model, one for each thread at work: buffers, and a cache of whole pieces of fixed
// size (2 MiB), where a new piece takes the place of an older one with the same slot.
class BpeScratch {
 public:
  BpeScratch() : cache_(kSlots) {}

 private:
  friend class Bpe;
  static constexpr std::size_t kSlots = 1 << 14;
  static constexpr std::size_t kKeyBytes = 62;
  static constexpr std::size_t kIds = 16;
  struct Slot {
    std::uint8_t key_size = 0;  // 0: empty
    std::uint8_t id_count = 0;
    std::array<char, kKeyBytes> key;
    std::array<std::int32_t, kIds> ids;
  };
  static_assert(sizeof(Slot) == 128);
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;  // kGone once merged into the one before
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    std::int32_t id;
  };

  std::uint64_t seed_ = hash_seed();
  std::vector<Slot> cache_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint32_t> ranks_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

class Bpe {
 public:
  static constexpr std::size_t kMaxMerges = 1 << 23;

  // Fails if a merge names a token that is not in the vocabulary, or makes one that is not.
  Status add_merge(std::string_view left, std::string_view right);
  void reserve_merges(std::size_t count) { merges_.reserve(count); }
  // After the vocabulary and the merges.
  void finish(BpeOptions options);

  Vocab& vocab() { return vocab_; }
  const Vocab& vocab() const { return vocab_; }

  // Appends the ids of one piece of text.
  Status encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  Status split_characters(std::string_view piece, std::vector<std::int32_t>& ids) const;
  std::int32_t character_id(std::string_view character) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  // Covers ASCII and the characters that stand for bytes in byte-level vocabularies.
  static constexpr std::uint32_t kDirect = 0x180;

  Vocab vocab_;
  PairMap merges_;
  std::uint32_t merge_count_ = 0;
  BpeOptions options_;
  std::int32_t unk_id_ = Vocab::kNone;
  std::array<std::int32_t, kDirect> direct_{};   // by code point
  std::array<std::int32_t, 256> byte_tokens_{};  // <0x00> to <0xFF>
  std::string joined_;                           // for add_merge
};

}  // namespace cadre::text
