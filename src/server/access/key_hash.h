// Keys are kept as SHA-256. That is enough for what they are: random strings of at least 128 bits, drawn by
// `cadre keys new` (256 bits). A password hash buys time against guessing words; nobody guesses 2^128 strings, and a
// slow hash on every request would be a lever for whoever wants to stall the server.
#pragma once

#include <cadre/status.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cadre::server {

using KeyHash = std::array<std::uint8_t, 32>;

Result<KeyHash> hash_key(std::string_view key);
std::string to_hex(const KeyHash& hash);
// 64 hexadecimal digits of either case.
Result<KeyHash> parse_hash(std::string_view hex);
// In the same time whatever differs.
bool equal(const KeyHash& a, const KeyHash& b);
// "cadre-" and 43 characters: 256 random bits.
Result<std::string> random_key();

}  // namespace cadre::server
