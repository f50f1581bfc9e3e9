// Why a choice ended, in the words of the replies.
#pragma once

#include <cadre/engine.h>

#include <span>

#include "io/json.h"

namespace cadre::server {

// "stop", "length", "abort" (stopped from outside, as vLLM says); null while it has not ended.
Json finish_reason(FinishReason reason);

// vLLM's stop_reason: the stop string or the id of stop_token_ids that ended the text; null for the model's own end,
// and for every other reason.
Json stop_reason(const Event& last, std::span<const std::int32_t> stop_token_ids);

}  // namespace cadre::server
