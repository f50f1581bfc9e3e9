// /v1/chat/completions and /v1/completions.
#pragma once

#include "server/service/context.h"

namespace cadre::server {

inline constexpr std::string_view kChatRoute = "/v1/chat/completions";

// On a worker's thread. The answer comes from the engine's thread as it is made.
void chat_completions(Context& context, Exchange exchange);
void completions(Context& context, Exchange exchange);

// A request's chat_template_kwargs before the server's own; both JSON objects or empty.
std::string merge_kwargs(const std::string& defaults, const std::string& own);

}  // namespace cadre::server
