// Ending: why one choice ended, in the words of the replies.
#pragma once

#include <cadre/engine.h>

#include <optional>
#include <vector>

#include "engine/sampling/stop_checker.h"
#include "io/json.h"
#include "server/openai/logprobs.h"

namespace cadre::server {

// "stop", "length", "abort" (stopped from outside, as vLLM says); null while it has not ended.
Json finish_reason(FinishReason reason);

// vLLM's stop_reason: the stop string or the id of stop_token_ids that ended the text; null for the model's own end,
// and for every other reason. Events do not say which it was, so the tokens pass the engine's own search once more.
class Ending {
 public:
  explicit Ending(const SamplingRequest& sampling)
      : stops_(sampling.stop),
        stop_token_ids_(sampling.stop_token_ids),
        min_tokens_(sampling.min_tokens.value_or(0)),
        search_(!sampling.stop.empty()) {}
  void take(const Event& event, const TokenText& text);
  const Json& stop_reason() const { return stop_reason_; }

 private:
  StopChecker stops_;
  std::vector<std::int32_t> stop_token_ids_;
  std::int32_t min_tokens_;
  bool search_;
  std::int32_t tokens_ = 0;
  Json stop_reason_;
};

}  // namespace cadre::server
