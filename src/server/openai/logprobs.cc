#include "server/openai/logprobs.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "io/utf8.h"

namespace cadre::server {
namespace {

// JSON has no infinity; OpenAI and vLLM write this for what cannot happen.
constexpr double kLowest = -9999;

double shown(float logprob) { return logprob > kLowest ? static_cast<double>(logprob) : kLowest; }

Json byte_list(const std::string& bytes) {
  std::vector<Json> list;
  list.reserve(bytes.size());
  for (const char c : bytes) list.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return Json::array(std::move(list));
}

std::span<const TokenChance> most_likely(const std::vector<TokenChance>& chances, std::int32_t top) {
  if (chances.empty()) return {};
  const std::span<const TokenChance> list = std::span(chances).subspan(1);
  return list.first(std::min(list.size(), static_cast<std::size_t>(std::max(top, 0))));
}

// As Json::dump writes it: with U+FFFD for each byte that is no part of a whole character.
std::string whole_characters(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t n = utf8_char_bytes(bytes);
    out += n > 0 ? bytes.substr(0, n) : "\xef\xbf\xbd";
    bytes.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

std::vector<Json::Member> chance(const TokenChance& c, const TokenText& text) {
  const std::string bytes = text(c.id);
  // A part of a character is written as U+FFFD; the bytes are exact.
  return {{"token", bytes}, {"logprob", shown(c.logprob)}, {"bytes", byte_list(bytes)}};
}

}  // namespace

Json chat_logprob(const std::vector<TokenChance>& chances, std::int32_t top, const TokenText& text) {
  std::vector<Json> list;
  for (const TokenChance& c : most_likely(chances, top)) list.push_back(Json::object(chance(c, text)));
  std::vector<Json::Member> members = chance(chances.front(), text);
  members.emplace_back("top_logprobs", Json::array(std::move(list)));
  return Json::object(std::move(members));
}

void CompletionLogprobs::add_token(const std::string& bytes) {
  tokens_.emplace_back(bytes);
  offsets_.emplace_back(offset_);
  // Characters, counted at their first byte, so that those cut between tokens count once.
  offset_ += std::count_if(bytes.begin(), bytes.end(),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; });
}

void CompletionLogprobs::add(const std::vector<TokenChance>& chances, const TokenText& text) {
  add_token(text(chances.front().id));
  logprobs_.emplace_back(shown(chances.front().logprob));
  if (top_ == 0) {
    tops_.emplace_back(nullptr);
    return;
  }
  // Tokens that look alike share a key: the most likely one's value is shown.
  std::vector<Json::Member> unique;
  for (const TokenChance& c : most_likely(chances, top_)) {
    Json::Member member(whole_characters(text(c.id)), shown(c.logprob));
    const auto same = [&](const Json::Member& m) { return m.first == member.first; };
    if (std::none_of(unique.begin(), unique.end(), same)) unique.push_back(std::move(member));
  }
  tops_.push_back(Json::object(std::move(unique)));
}

void CompletionLogprobs::add_unknown(std::int32_t id, const TokenText& text) {
  add_token(text(id));
  logprobs_.emplace_back(nullptr);
  tops_.emplace_back(nullptr);
}

Json CompletionLogprobs::take() {
  return Json::object({{"text_offset", Json::array(std::exchange(offsets_, {}))},
                       {"token_logprobs", Json::array(std::exchange(logprobs_, {}))},
                       {"tokens", Json::array(std::exchange(tokens_, {}))},
                       {"top_logprobs", Json::array(std::exchange(tops_, {}))}});
}

Json prompt_logprobs(const std::vector<std::vector<TokenChance>>& chances, std::int32_t top, const TokenText& text) {
  std::vector<Json> list;
  list.emplace_back(nullptr);
  for (const std::vector<TokenChance>& position : chances) {
    std::vector<Json::Member> tokens;
    const auto add = [&](const TokenChance& c, Json rank) {
      tokens.emplace_back(
          std::to_string(c.id),
          Json::object({{"logprob", shown(c.logprob)}, {"rank", std::move(rank)}, {"decoded_token", text(c.id)}}));
    };
    // Its rank is known where it is among the most likely, whose entry then replaces this one.
    if (!position.empty()) add(position.front(), nullptr);
    int rank = 0;
    for (const TokenChance& c : most_likely(position, top)) add(c, ++rank);
    list.push_back(Json::object(std::move(tokens)));
  }
  return Json::array(std::move(list));
}

}  // namespace cadre::server
