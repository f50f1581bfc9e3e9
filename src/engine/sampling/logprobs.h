// Log-probabilities of the model's own distribution, to report beside the tokens.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <span>
#include <vector>

namespace cadre {

struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;  // natural logarithm; minus infinity for a masked token
};

struct Logprobs {
  TokenLogprob chosen;
  std::int32_t rank = 1;  // of the chosen token: 1 plus the number of tokens with a higher logit
  std::vector<TokenLogprob>
      top;  // the most likely, in order, equal ones by id; has the chosen token if it is among them
};

// The log-softmax, in double, of a row of logits [vocab] for the `chosen` token and for the `count` most likely. To
// report the model's distribution, call it before sample, which overwrites the row. NaN and plus infinity are refused.
[[nodiscard]] Result<Logprobs> token_logprobs(std::span<const float> logits, std::int32_t chosen, std::int32_t count);

}  // namespace cadre
