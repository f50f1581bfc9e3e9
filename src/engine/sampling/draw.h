// Temperature, min_p, top_k, top_p and the draw.
#pragma once

#include <cadre/sampling.h>

#include <cstdint>
#include <span>

#include "engine/sampling/ranking.h"

namespace cadre {

// The token at `uniform`, in [0, 1), of the distribution that params.temperature (above 0), min_p, top_k and top_p make
// of the logits, cumulated from the most to the least likely token, equal logits by id.
[[nodiscard]] std::int32_t draw(std::span<const float> logits, const LogitRange& range, const SamplingParams& params,
                                double uniform);

}  // namespace cadre
