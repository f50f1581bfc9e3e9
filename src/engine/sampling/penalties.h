// What changes single logits before temperature: masks, bias and penalties.
#pragma once

#include <cadre/sampling.h>

#include <span>

#include "engine/sampling/token_history.h"

namespace cadre {

// Masks end tokens while the output is shorter than min_tokens, adds logit_bias, then applies the penalties, in place.
// Returns whether anything may have changed. Ids outside the row have no logit and are passed over: a prompt may hold
// placeholders of images, and a file may name end tokens that the model has not. A finite logit stays finite.
bool adjust_logits(std::span<float> logits, const SamplingParams& params, const TokenHistory& history);

}  // namespace cadre
