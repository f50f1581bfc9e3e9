// The alphabet of byte-level vocabularies: every byte stands as one printable character.
#pragma once

#include <string>
#include <string_view>

namespace cadre::text {

// Appends the characters that stand for `bytes`.
void append_byte_alphabet(std::string_view bytes, std::string& out);

// Appends the bytes that the characters of `token` stand for; the token itself, if one of them stands for no byte.
void append_bytes_of(std::string_view token, std::string& out);

}  // namespace cadre::text
