#include "server/openai/ending.h"

#include <algorithm>

namespace cadre::server {

Json finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kNone:
    case FinishReason::kError:
      break;
  }
  return nullptr;
}

Json stop_reason(const Event& last, std::span<const std::int32_t> stop_token_ids) {
  if (last.finish != FinishReason::kStop) return nullptr;
  if (!last.stop.empty()) return last.stop;
  const bool asked =
      last.token && std::find(stop_token_ids.begin(), stop_token_ids.end(), *last.token) != stop_token_ids.end();
  return asked ? Json(*last.token) : Json();
}

}  // namespace cadre::server
