// What the parsers of the routes share.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "server/openai/fields.h"
#include "server/openai/request.h"

namespace cadre::server {

ApiResult<Json> parse_body(std::string_view body, const RequestLimits& limits);

// The fields of GenerationRequest but for the log-probabilities, which each route asks for in its own way.
void read_generation(Fields& fields, const RequestLimits& limits, GenerationRequest& out);
// Fields that no generating route reads, and why.
std::span<const KnownField> known_generation_fields();

// messages, tools, tool_choice and the template's variables.
void read_chat(Fields& fields, const RequestLimits& limits, ChatInput& out, bool& parse_tools);

// A list of token ids.
std::vector<std::int32_t> read_ids(Fields& fields, std::string_view key, const Json& list);

}  // namespace cadre::server
