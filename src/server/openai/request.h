// What clients send, as values: the bodies of the OpenAI routes, of vLLM's tokenizer and adapter routes, checked for
// type, range and size. What needs the model (token ids, context length) is checked by the engine.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/openai/api_error.h"

namespace cadre::server {

struct RequestLimits {
  std::uint64_t max_body_bytes = 16 << 20;
  std::uint64_t max_values = 1 << 19;  // JSON values in a body: about a hundred megabytes of memory at worst
  std::int32_t max_n = 128;
  std::size_t max_prompts = 256;
  std::size_t max_choices = 1024;  // prompts times n
  std::size_t max_messages = 4096;
  std::size_t max_parts = 4096;      // of one message's content
  std::size_t max_tool_calls = 256;  // of one message
  std::size_t max_tools = 256;
  std::size_t max_logit_bias = 4096;
  std::int32_t max_logprobs = 20;  // most likely tokens reported for each position
};

// What both generating routes share.
struct GenerationRequest {
  std::string model;  // empty: the base model
  // `logprobs` is set where they are asked for. `stop_token_ids`, `logit_bias`: within int32, not within the
  // vocabulary.
  SamplingRequest sampling;
  std::int32_t n = 1;
  bool stream = false;
  bool include_usage = false;     // stream_options: a last chunk with the usage
  bool continuous_usage = false;  // stream_options.continuous_usage_stats: the usage so far in every chunk
  std::optional<std::int32_t> prompt_logprobs;  // vLLM's field: the reply shows them
  std::optional<bool> add_special_tokens;       // absent: the route's default (completions true, chat false)
  std::int32_t priority = 0;
  std::string cache_salt;  // prompts share cache entries only with those of the same salt
};

struct ChatRequest : GenerationRequest {
  ChatInput chat;              // for the template; without tools at tool_choice "none"
  bool parse_tools = false;    // tool calls are looked for in what is generated
  bool parallel_tools = true;  // false: the first call only
};

// Text or token ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;  // choice i of prompt p has index p * n + i in the reply
  bool echo = false;
  // echo with max_tokens 0: the reply is the prompt, with its log-probabilities. One token is generated (max_tokens is
  // 1) and left out.
  bool prompt_only = false;
  // What the engine must be asked for: the larger of `prompt_logprobs` and, with echo, `logprobs`.
  std::optional<std::int32_t> engine_prompt_logprobs() const;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, ChatInput> input;
  bool add_special_tokens = true;  // default of a chat: false, the template writes them
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<std::int32_t> tokens;
};

struct LoadAdapterRequest {
  std::string name, path, options;  // options as AdapterSource::options
  bool replace = false;             // load_inplace: the name may be taken
  bool pinned = false;
};

struct UnloadAdapterRequest {
  std::string name;
};

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits = {});
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const RequestLimits& limits = {});
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits = {});
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const RequestLimits& limits = {});
ApiResult<LoadAdapterRequest> parse_load_adapter_request(std::string_view body, const RequestLimits& limits = {});
ApiResult<UnloadAdapterRequest> parse_unload_adapter_request(std::string_view body, const RequestLimits& limits = {});

}  // namespace cadre::server
