#include "server/access/key_hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/result.h"

namespace cadre::server {

Result<KeyHash> hash_key(std::string_view key) {
  KeyHash hash{};
  unsigned int size = 0;
  if (EVP_Digest(key.data(), key.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1 || size != hash.size()) {
    return error(Code::kUnsupported, "the OpenSSL library of this machine offers no SHA-256, which keys need");
  }
  return hash;
}

std::string to_hex(const KeyHash& hash) {
  std::string text;
  for (const std::uint8_t byte : hash) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Result<KeyHash> parse_hash(std::string_view hex) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  KeyHash hash{};
  if (hex.size() != 2 * hash.size()) {
    return error(Code::kInvalidFile, "has ", hex.size(), " characters, want the 64 hexadecimal digits of a SHA-256");
  }
  for (std::size_t i = 0; i < hash.size(); ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    // What stands there is not repeated: it may be a key that was put in by mistake.
    if (high < 0 || low < 0) return error(Code::kInvalidFile, "has a character that is no hexadecimal digit");
    hash[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return hash;
}

bool equal(const KeyHash& a, const KeyHash& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Result<std::string> random_key() {
  std::array<std::uint8_t, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return error(Code::kUnsupported, "this machine gives no random bytes, which a key is made of");
  }
  // base64url without padding.
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string key = "cadre-";
  std::uint32_t bits = 0;
  int have = 0;
  for (const std::uint8_t byte : bytes) {
    bits = (bits << 8) | byte;
    for (have += 8; have >= 6;) key += kDigits[(bits >> (have -= 6)) & 63];
  }
  if (have > 0) key += kDigits[(bits << (6 - have)) & 63];
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return key;
}

}  // namespace cadre::server
