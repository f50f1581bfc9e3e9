// Log-probabilities in the forms of the two routes.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/json.h"

namespace cadre::server {

// A token's own bytes, which may be a part of a character.
using TokenText = std::function<std::string(std::int32_t)>;

// Chat: one item of "content": {"token", "logprob", "bytes", "top_logprobs"}. `chances` is the token, then the most
// likely, as in Event; `top` of these are shown.
Json chat_logprob(const std::vector<TokenChance>& chances, std::int32_t top, const TokenText& text);

// Completions: {"text_offset", "token_logprobs", "tokens", "top_logprobs"}, built token by token.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(std::int32_t top) : top_(top) {}
  void add(const std::vector<TokenChance>& chances, const TokenText& text);
  // A token without any: the first of a prompt.
  void add_unknown(std::int32_t id, const TokenText& text);
  bool empty() const { return tokens_.empty(); }
  // What was added since the last call. Offsets go on.
  Json take();

 private:
  void add_token(const std::string& bytes);

  std::int32_t top_;
  std::int64_t offset_ = 0;  // in characters
  std::vector<Json> offsets_, logprobs_, tokens_, tops_;
};

// vLLM's form of a prompt's: null for the first token, then {"id": {"logprob", "rank", "decoded_token"}} each.
Json prompt_logprobs(const std::vector<std::vector<TokenChance>>& chances, std::int32_t top, const TokenText& text);

}  // namespace cadre::server
