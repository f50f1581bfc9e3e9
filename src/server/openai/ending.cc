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

void Ending::take(const Event& event, const TokenText& text) {
  if (!event.token) return;
  ++tokens_;
  if (search_) (void)stops_.feed(text(*event.token), tokens_ >= min_tokens_);
  if (event.finish != FinishReason::kStop) return;
  const auto id = std::find(stop_token_ids_.begin(), stop_token_ids_.end(), *event.token);
  if (id != stop_token_ids_.end()) {
    stop_reason_ = *id;
  } else if (stops_.stopped()) {
    stop_reason_ = stops_.matched();
  }
}

}  // namespace cadre::server
