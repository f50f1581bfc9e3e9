#include "text/tokenizer/vocab.h"

#include <bit>

#include "base/result.h"

namespace cadre::text {

void Vocab::grow(std::size_t slots) {
  slots_.assign(slots, kNone);
  mask_ = slots - 1;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].begin == kNoText) continue;
    std::size_t at = hash_bytes(text(static_cast<std::int32_t>(id)), seed_) & mask_;
    while (slots_[at] != kNone) at = (at + 1) & mask_;
    slots_[at] = static_cast<std::int32_t>(id);
  }
}

void Vocab::reserve(std::size_t tokens, std::size_t bytes) {
  tokens_.reserve(tokens);
  bytes_.reserve(bytes);
  const std::size_t slots = std::bit_ceil(tokens * 2 + 16);
  if (slots > slots_.size()) grow(slots);
}

Status Vocab::add(std::string_view token, std::int64_t id) {
  if (id < 0 || id > kMaxId) {
    return error(Code::kInvalidFile, "token '", token.substr(0, 100), "' has id ", id, ", want 0 to ", kMaxId);
  }
  const auto index = static_cast<std::int32_t>(id);
  if (has(index)) {
    return error(Code::kInvalidFile, "id ", id, " belongs to both '", text(index).substr(0, 100), "' and '",
                 token.substr(0, 100), "'");
  }
  if (find(token) != kNone) {
    return error(Code::kInvalidFile, "token '", token.substr(0, 100), "' has two ids, ", find(token), " and ", id);
  }
  if (bytes_.size() + token.size() >= kNoText) {
    return error(Code::kLimitExceeded, "the tokens have more than ", kNoText, " bytes");
  }
  if (static_cast<std::size_t>(index) >= tokens_.size()) tokens_.resize(static_cast<std::size_t>(index) + 1);
  tokens_[index] = {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(token.size())};
  bytes_ += token;
  ++count_;
  if (count_ * 2 > slots_.size()) {
    grow(slots_.empty() ? 16 : slots_.size() * 2);
  } else {
    std::size_t at = hash_bytes(token, seed_) & mask_;
    while (slots_[at] != kNone) at = (at + 1) & mask_;
    slots_[at] = index;
  }
  return {};
}

}  // namespace cadre::text
