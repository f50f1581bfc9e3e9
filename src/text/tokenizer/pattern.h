// The "pattern" of a Split or Replace: {"String": "..."} or {"Regex": "..."}.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "text/tokenizer/json_value.h"
#include "text/tokenizer/regex.h"

namespace cadre::text {

// The most that a normalizer or pre-tokenizer may make of a text of `input` bytes: a hostile file can multiply a text
// at every stage. What the largest texts may become leaves 32-bit spans room for one more stage.
inline std::size_t grown_limit(std::size_t input) {
  return std::min((std::size_t{1} << 20) + 32 * input, std::size_t{1} << 30);
}

Result<Regex> pattern_from_json(const JsonValue& json);  // the object that has "pattern"

// Every match replaced by `content`, taken literally.
Result<std::string> replace_all(const Regex& regex, std::string_view text, std::string_view content, std::size_t limit,
                                RegexScratch& scratch);

}  // namespace cadre::text
