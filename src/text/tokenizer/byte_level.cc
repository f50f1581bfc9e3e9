#include "text/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

// Printable Latin-1 bytes stand for themselves; the others, in order, for U+0100 and up.
struct Alphabet {
  std::array<std::uint16_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};

  Alphabet() {
    byte.fill(-1);
    std::uint16_t next = 0x100;
    for (std::uint16_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

void append_byte_alphabet(std::string_view bytes, std::string& out) {
  const Alphabet& table = alphabet();
  const std::size_t begin = out.size();
  out.resize(begin + 2 * bytes.size());
  char* p = out.data() + begin;
  for (const char c : bytes) {
    const std::uint32_t point = table.character[static_cast<unsigned char>(c)];
    if (point < 0x80) {
      *p++ = static_cast<char>(point);
    } else {
      *p++ = static_cast<char>(0xC0 | point >> 6);
      *p++ = static_cast<char>(0x80 | (point & 0x3F));
    }
  }
  out.resize(static_cast<std::size_t>(p - out.data()));
}

void append_bytes_of(std::string_view token, std::string& out) {
  const Alphabet& table = alphabet();
  const std::size_t begin = out.size();
  for (std::size_t pos = 0; pos < token.size();) {
    const std::uint32_t point = next_code_point(token, pos);
    if (point >= table.byte.size() || table.byte[point] < 0) {
      out.resize(begin);
      out += token;
      return;
    }
    out += static_cast<char>(table.byte[point]);
  }
}

}  // namespace cadre::text
