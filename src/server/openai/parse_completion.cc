#include <algorithm>

#include "server/openai/parsing.h"

namespace cadre::server {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kDefaultMaxTokens = 16;  // OpenAI's, of this route only

// A string, a list of strings, a list of ids, or a list of lists of ids.
void read_prompts(Fields& fields, const RequestLimits& limits, std::vector<Prompt>& out) {
  const Json* prompt = fields.any("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "is missing");
  if (prompt->is_string()) {
    out.emplace_back(*prompt->as_string("prompt"));
    return;
  }
  if (!prompt->is_array()) {
    return fields.fail("prompt", "is " + describe(*prompt) + ", want a string, token ids, or a list of either");
  }
  if (prompt->items().empty()) return fields.fail("prompt", "is empty, want at least one token or text");
  if (prompt->items().front().is_number()) {
    out.emplace_back(read_ids(fields, "prompt", *prompt));
    return;
  }
  if (prompt->items().size() > limits.max_prompts) {
    return fields.fail("prompt", "has " + std::to_string(prompt->items().size()) + " prompts, want at most " +
                                     std::to_string(limits.max_prompts));
  }
  for (const Json& item : prompt->items()) {
    if (item.is_string()) {
      out.emplace_back(*item.as_string("prompt"));
    } else if (item.is_array()) {
      if (item.items().empty()) return fields.fail("prompt", "has an empty list, want at least one token");
      out.emplace_back(read_ids(fields, "prompt", item));
    } else {
      return fields.fail("prompt", "has " + describe(item) + " among its prompts, want strings or lists of token ids");
    }
  }
}

void read_max_tokens(Fields& fields, CompletionRequest& out) {
  const auto value = fields.integer("max_tokens", 0, kInt32Max);
  out.sampling.max_tokens = static_cast<std::int32_t>(value.value_or(kDefaultMaxTokens));
  if (value.value_or(kDefaultMaxTokens) > 0) return;
  if (!out.echo) fields.fail("max_tokens", "is 0, want at least 1 unless 'echo' is true");
  out.prompt_only = true;
  out.sampling.max_tokens = 1;
}

}  // namespace

std::optional<std::int32_t> CompletionRequest::engine_prompt_logprobs() const {
  if (!echo || !sampling.logprobs) return prompt_logprobs;
  return std::max(prompt_logprobs.value_or(0), *sampling.logprobs);
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const RequestLimits& limits) {
  const ApiResult<Json> json = parse_body(body, limits);
  if (!json.ok()) return json.error();
  CompletionRequest out;
  std::optional<ApiError> error;
  Fields fields(*json, "", error);
  read_generation(fields, limits, out);
  read_prompts(fields, limits, out.prompts);
  out.echo = fields.boolean("echo").value_or(false);
  read_max_tokens(fields, out);
  if (const auto top = fields.integer("logprobs", 0, limits.max_logprobs)) {
    out.sampling.logprobs = static_cast<std::int32_t>(*top);
  }
  if (const std::size_t choices = out.prompts.size() * static_cast<std::size_t>(out.n); choices > limits.max_choices) {
    fields.fail("n", "times the number of prompts is " + std::to_string(choices) + ", want at most " +
                         std::to_string(limits.max_choices));
  }
  fields.refuse_others(known_generation_fields());
  if (error) return *std::move(error);
  return out;
}

}  // namespace cadre::server
