// Reply: the answer to one generating request, made of the engine's events. Streamed or whole, an answer passes the
// same code: each event becomes what it adds to a choice, which is then sent or kept.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "server/openai/api_error.h"
#include "server/openai/logprobs.h"
#include "server/openai/request.h"

namespace cadre::server {

struct ReplyInfo {
  std::string id;            // new_reply_id
  std::int64_t created = 0;  // seconds since 1970
  std::string model;         // as the request named it
  std::string fingerprint;   // system_fingerprint: of the model, adapter version and build; empty: left out
};

// "chatcmpl-" and 32 random hexadecimal digits.
std::string new_reply_id(std::string_view prefix);

struct PromptTokens {
  std::vector<std::int32_t> ids;
  std::string text;  // completions with echo
};

inline constexpr std::string_view kChatPrefix = "chatcmpl-";
inline constexpr std::string_view kCompletionPrefix = "cmpl-";
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

// "data: {...}\n\n"
std::string server_sent_event(std::string_view json);

// Not for several threads at once. Choices are numbered through all prompts: choice i of prompt p is p * n + i.
class Reply {
 public:
  virtual ~Reply() = default;

  bool stream() const { return setup_.stream; }
  // Takes an event. Streaming: returns what to send now, which may be nothing; an event that is an error becomes an
  // error chunk and ends the stream. Events of a choice that has finished, and all after an error, are passed over.
  std::string feed(std::size_t choice, const Event& event);
  // Streaming, after done: the usage if it was asked for, and the end. Nothing after an error, which had its own end.
  std::string finish();
  // An error from elsewhere. Streaming: the chunk and the end.
  std::string fail(ApiError error);

  // Every choice has finished, or there is an error.
  bool done() const { return error_.has_value() || open_ == 0; }
  const std::optional<ApiError>& error() const { return error_; }
  // Whole replies, after done and without error.
  std::string body() const;

  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  std::int64_t completion_tokens() const { return completion_tokens_; }
  std::int64_t cached_tokens() const { return cached_tokens_; }

 protected:
  struct Setup {
    ReplyInfo info;
    std::string_view object, chunk_object;  // "chat.completion"
    std::size_t prompts = 1, n = 1;
    std::int64_t prompt_tokens = 0;
    bool stream = false, include_usage = false, continuous_usage = false;
    bool count_tokens = true;  // false: what is generated is not shown
  };
  explicit Reply(Setup setup);

  const ReplyInfo& info() const { return setup_.info; }
  // Streaming: members of "choices", each for a chunk of its own. Else they are kept, and none returned.
  virtual std::vector<Json> take(std::size_t choice, const Event& event) = 0;
  virtual Json whole_choice(std::size_t choice) const = 0;
  virtual std::vector<Json::Member> further_members() const { return {}; }

 private:
  std::vector<Json::Member> head(std::string_view object) const;
  Json usage() const;

  Setup setup_;
  std::vector<bool> finished_;
  std::size_t open_;
  std::int64_t prompt_tokens_, completion_tokens_ = 0, cached_tokens_ = 0;
  std::optional<ApiError> error_;
};

// `prompt` and `prompts` as the engine computes them; one for each prompt of the request.
std::unique_ptr<Reply> chat_reply(const ChatRequest& request, ReplyInfo info, const PromptTokens& prompt,
                                  TokenText token_text);
std::unique_ptr<Reply> completion_reply(const CompletionRequest& request, ReplyInfo info,
                                        std::vector<PromptTokens> prompts, TokenText token_text);

}  // namespace cadre::server
