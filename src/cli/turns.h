// Requests from their submission to their last token, with the time each part takes.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output.h"

namespace cadre::cli {

struct Answer {
  std::string adapter;  // "" is the base
  std::uint64_t request = 0;
  std::vector<std::int32_t> prompt_ids, ids;  // ids: with the end token, where there was one
  std::string text;
  FinishReason finish = FinishReason::kNone;
  Status error;          // why, where it ended by kError
  double prefill_s = 0;  // from the start of generate to the first token
  double decode_s = 0;   // from there to the last token
  // Tokens a second after the first; 0 where there is no second token.
  double tokens_per_s() const;
};

Result<Answer> submit(Engine& engine, Request request);

// Steps until every answer is complete. Ctrl-C, or standard output that cannot be written any more, cancels them all;
// what they have by then stays. To be called inside an InterruptScope.
using OnEvent = std::function<void(Answer& answer, std::string_view new_text)>;
Status generate(Engine& engine, std::span<Answer> answers, const Output& out, const OnEvent& on_event);

// "8 tokens at 412.3 tok/s, prompt of 16 at 1890.0 tok/s, backend cpu_reference"
std::string speed_text(const Engine& engine, std::span<const Answer> answers);

}  // namespace cadre::cli
