// Tokens that are cut out of the text before the model sees it: <|im_start|>, <think>, ...
#pragma once

#include <cadre/status.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/json_value.h"

namespace cadre::text {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = true;    // looked for in the normalized text, as normalized itself
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool single_word = false;  // not inside a word

  static Result<AddedToken> from_json(const JsonValue& json);
};

// A part of the text: an added token (id >= 0), or text between.
struct Segment {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

// Finds tokens from left to right, the longest at each place, none overlapping.
class TokenFinder {
 public:
  static constexpr std::size_t kMaxBytes = 4096;  // of one token: bounds the work at each place of the text

  // `pattern` is what to look for, usually token.content. Empty patterns are never found.
  Status add(std::string pattern, const AddedToken& token);
  void finish();  // after the last add
  // Appends the segments of `text`, none of them empty text.
  void split(std::string_view text, std::vector<Segment>& out) const;
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string pattern;
    std::int32_t id;
    bool lstrip;
    bool rstrip;
    bool single_word;
    std::size_t order;  // of adding
  };
  const Entry* longest_at(std::string_view text, std::size_t pos) const;

  std::vector<Entry> entries_;              // sorted by pattern
  std::array<std::uint32_t, 257> first_{};  // entries by first byte: first_[b] to first_[b + 1]
};

}  // namespace cadre::text
