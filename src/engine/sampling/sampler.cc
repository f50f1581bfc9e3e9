#include "engine/sampling/sampler.h"

#include "engine/sampling/draw.h"
#include "engine/sampling/penalties.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/ranking.h"

namespace cadre {

Result<std::int32_t> sample(std::span<float> logits, const SamplingParams& params, const TokenHistory& history,
                            std::uint64_t position, std::uint32_t choice) {
  CADRE_ASSIGN(LogitRange range, logit_range(logits));
  if (adjust_logits(logits, params, history)) {
    CADRE_ASSIGN(range, logit_range(logits));
  }
  if (params.temperature == 0) return argmax(logits, range.highest);
  if (!params.seed) {
    return error(Code::kInvalidArgument, "temperature is ", params.temperature,
                 " and seed is not set, want a seed for every request that draws (fresh_seed)");
  }
  return draw(logits, range, params, uniform_at(*params.seed, choice, position));
}

}  // namespace cadre
