// UTF-8 and the Unicode properties that tokenizers ask about. Text is valid UTF-8 unless a comment says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cadre::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character that starts with `lead`.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at text[pos], and pos moved past it.
std::uint32_t next_code_point(std::string_view text, std::size_t& pos);
// The code point that ends at text[pos], and pos moved to its start.
std::uint32_t previous_code_point(std::string_view text, std::size_t& pos);
void append_utf8(std::uint32_t code_point, std::string& out);

// Appends bytes of any kind to `out` as UTF-8: each maximal part that cannot begin a character becomes one U+FFFD.
// Unless `last`, an unfinished character at the end stays; the return value is the number of bytes consumed.
std::size_t append_lossy(std::string_view bytes, bool last, std::string& out);
// Whether any bytes at all are UTF-8.
bool valid_utf8(std::string_view bytes);

bool is_whitespace(std::uint32_t code_point);   // White_Space
bool is_numeric(std::uint32_t code_point);      // category N
bool is_mark(std::uint32_t code_point);         // category M
bool is_punctuation(std::uint32_t code_point);  // category P, or punctuation of ASCII (which has symbols too)
bool is_word(std::uint32_t code_point);         // what \w matches: letters, marks, digits, connectors, joiners

enum class NormalForm : std::uint8_t { kC, kD, kKc, kKd };
std::string normalize(std::string_view text, NormalForm form);
std::string lowercase(std::string_view text);

}  // namespace cadre::text
