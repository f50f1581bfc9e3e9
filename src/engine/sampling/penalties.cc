#include "engine/sampling/penalties.h"

#include <algorithm>
#include <limits>

namespace cadre {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

float* logit_of(std::span<float> logits, std::int32_t id) {
  return id >= 0 && static_cast<std::size_t>(id) < logits.size() ? &logits[static_cast<std::size_t>(id)] : nullptr;
}

void set(float* logit, double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  *logit = static_cast<float>(std::clamp(value, -kMax, kMax));
}

bool mask_ends(std::span<float> logits, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) {
    if (float* logit = logit_of(logits, id)) *logit = kMasked;
  }
  return !ids.empty();
}

void penalize(std::span<float> logits, const SamplingParams& params, const TokenHistory& history) {
  for (const auto& [id, counts] : history.counts()) {
    float* logit = logit_of(logits, id);
    if (logit == nullptr || *logit == kMasked) continue;
    double x = *logit;
    x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    if (counts.generated > 0) x -= counts.generated * params.frequency_penalty + params.presence_penalty;
    set(logit, x);
  }
}

}  // namespace

bool adjust_logits(std::span<float> logits, const SamplingParams& params, const TokenHistory& history) {
  bool changed = false;
  if (params.min_tokens > 0 && history.generated() < static_cast<std::uint64_t>(params.min_tokens)) {
    changed |= mask_ends(logits, params.stop_token_ids);
    changed |= mask_ends(logits, params.eos_token_ids);
  }
  for (const auto& [id, bias] : params.logit_bias) {
    float* logit = logit_of(logits, id);
    if (logit == nullptr || *logit == kMasked) continue;
    set(logit, static_cast<double>(*logit) + static_cast<double>(bias));
    changed = true;
  }
  if (params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0) {
    penalize(logits, params, history);
    changed = true;
  }
  return changed;
}

}  // namespace cadre
