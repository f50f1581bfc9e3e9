// One token from one row of logits.
#pragma once

#include <cadre/sampling.h>

#include <cstdint>
#include <span>

#include "engine/sampling/token_history.h"

namespace cadre {

// The token that `params` (validated) choose from a row of logits [vocab], which is overwritten by bias and penalties.
//
// Pure: the result depends on the arguments only, so the same seed gives the same token at the same position whatever
// else runs, in any batch and on any thread. `position` is the drawn token's index in its sequence, prompt included;
// `choice` numbers the answers that one request asks for (OpenAI's n).
//
// A draw walks the kept tokens from the most to the least likely, equal logits by id, until their probability passes
// uniform_at(seed, choice, position); all sums are in double. Minus infinity marks a token that cannot be chosen. NaN
// and plus infinity are refused, naming the token.
[[nodiscard]] Result<std::int32_t> sample(std::span<float> logits, const SamplingParams& params,
                                          const TokenHistory& history, std::uint64_t position, std::uint32_t choice);

}  // namespace cadre
