// Token texts and their ids, both ways.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/flat_hash.h"

namespace cadre::text {

class Vocab {
 public:
  // Ids index a table, so a file with one huge id must not size it. Published vocabularies end below 300,000.
  static constexpr std::int32_t kMaxId = (1 << 22) - 1;
  static constexpr std::size_t kMaxTokens = 1 << 22;
  static constexpr std::int32_t kNone = -1;

  void reserve(std::size_t tokens, std::size_t bytes);
  // Fails for an id out of range, and for an id or a text that is already there.
  Status add(std::string_view token, std::int64_t id);

  std::int32_t find(std::string_view token) const {
    if (slots_.empty()) return kNone;
    for (std::size_t at = hash_bytes(token, seed_) & mask_;; at = (at + 1) & mask_) {
      if (slots_[at] == kNone) return kNone;
      if (text(slots_[at]) == token) return slots_[at];
    }
  }
  bool has(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < tokens_.size() && tokens_[id].begin != kNoText;
  }
  std::string_view text(std::int32_t id) const {  // of an id that it has
    return std::string_view(bytes_).substr(tokens_[id].begin, tokens_[id].size);
  }
  std::size_t count() const { return count_; }
  std::size_t id_end() const { return tokens_.size(); }  // one more than the largest id

 private:
  static constexpr std::uint32_t kNoText = ~0U;
  struct Token {
    std::uint32_t begin = kNoText;
    std::uint32_t size = 0;
  };
  void grow(std::size_t slots);

  std::string bytes_;
  std::vector<Token> tokens_;        // by id
  std::vector<std::int32_t> slots_;  // ids, open addressing by text, at most half full
  std::size_t mask_ = 0;
  std::size_t count_ = 0;
  std::uint64_t seed_ = hash_seed();
};

}  // namespace cadre::text
