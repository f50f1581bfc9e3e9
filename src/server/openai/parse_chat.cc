#include "server/openai/parsing.h"

namespace cadre::server {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

void read_max_tokens(Fields& fields, SamplingRequest& out) {
  const auto older = fields.integer("max_tokens", 1, kInt32Max);
  const auto newer = fields.integer("max_completion_tokens", 1, kInt32Max);
  if (older && newer && *older != *newer) {
    fields.fail("max_completion_tokens",
                "is " + std::to_string(*newer) + " and max_tokens is " + std::to_string(*older) + ", want one of them");
  }
  if (const auto value = newer ? newer : older) out.max_tokens = static_cast<std::int32_t>(*value);
}

void read_logprobs(Fields& fields, const RequestLimits& limits, SamplingRequest& out) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const std::int64_t top = fields.integer("top_logprobs", 0, limits.max_logprobs).value_or(0);
  if (top > 0 && !wanted) fields.fail("top_logprobs", "is only for requests with 'logprobs': true");
  if (wanted) out.logprobs = static_cast<std::int32_t>(top);
}

void read_modalities(Fields& fields) {
  const Json* modalities = fields.array("modalities", 16);
  if (modalities == nullptr) return;
  for (const Json& item : modalities->items()) {
    if (item.is_string() && *item.as_string("") == "text") continue;
    return fields.fail("modalities", "has " + describe(item) + ", want \"text\": this server writes text only");
  }
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  const ApiResult<Json> json = parse_body(body, limits);
  if (!json.ok()) return json.error();
  ChatRequest out;
  std::optional<ApiError> error;
  Fields fields(*json, "", error);
  read_generation(fields, limits, out);
  read_max_tokens(fields, out.sampling);
  read_logprobs(fields, limits, out.sampling);
  read_chat(fields, limits, out.chat, out.parse_tools);
  read_modalities(fields);
  out.parallel_tools = fields.boolean("parallel_tool_calls").value_or(true);
  if (fields.boolean("echo").value_or(false)) fields.fail("echo", "is only for /v1/completions");
  fields.refuse_others(known_generation_fields());
  if (error) return *std::move(error);
  return out;
}

}  // namespace cadre::server
