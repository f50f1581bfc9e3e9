#include "engine/sampling/logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "engine/sampling/ranking.h"

namespace cadre {

Result<Logprobs> token_logprobs(std::span<const float> logits, std::int32_t chosen, std::int32_t count) {
  if (chosen < 0 || static_cast<std::size_t>(chosen) >= logits.size()) {
    return error(Code::kInvalidArgument, "logprobs of token ", chosen, ", want an id of at least 0 and below ",
                 logits.size());
  }
  CADRE_ASSIGN(const LogitRange range, logit_range(logits));
  const double highest = range.highest;
  double total = 0;
  std::int32_t rank = 1;
  const float own = logits[static_cast<std::size_t>(chosen)];
  for (const float x : logits) {
    total += std::exp(static_cast<double>(x) - highest);
    rank += x > own ? 1 : 0;
  }
  const double log_total = std::log(total);
  const auto logprob = [&](float x) { return static_cast<float>(static_cast<double>(x) - highest - log_total); };
  Logprobs out{{chosen, logprob(own)}, rank, {}};
  for (const RankedToken& token : top_tokens(logits, range, static_cast<std::size_t>(std::max(count, 0)))) {
    out.top.push_back({token.id(), logprob(token.logit())});
  }
  return out;
}

}  // namespace cadre
