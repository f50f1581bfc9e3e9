#include <cadre/sampling.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>

#include "base/result.h"
#include "io/utf8.h"

namespace cadre {
namespace {

template <class T>
Status refuse(std::string_view field, const T& got, std::string_view want) {
  return error(Code::kInvalidArgument, field, " is ", got, ", want ", want);
}

Status check_range(std::string_view field, double got, double min, double max, std::string_view want) {
  if (got >= min && got <= max) return Status();  // false for NaN
  return refuse(field, got, want);
}

Status check_token(std::string_view field, std::int32_t id, std::int32_t vocab) {
  if (id >= 0 && id < vocab) return Status();
  return error(Code::kInvalidArgument, field, " has token ", id,
               ", want an id of at least 0 and below the vocabulary's ", vocab);
}

Status check_stop(const std::vector<std::string>& stop) {
  if (stop.size() > kMaxStopStrings) {
    return error(Code::kInvalidArgument, "stop has ", stop.size(), " strings, want at most ", kMaxStopStrings);
  }
  for (std::size_t i = 0; i < stop.size(); ++i) {
    std::string_view rest = stop[i];
    if (rest.empty()) {
      return error(Code::kInvalidArgument, "stop[", i, "] is empty, want at least one character");
    }
    if (rest.size() > kMaxStopBytes) {
      return error(Code::kInvalidArgument, "stop[", i, "] has ", rest.size(), " bytes, want at most ", kMaxStopBytes);
    }
    while (!rest.empty()) {
      const std::size_t bytes = utf8_char_bytes(rest);
      if (bytes == 0) {
        return error(Code::kInvalidArgument, "stop[", i, "] is not valid UTF-8 at byte ", stop[i].size() - rest.size(),
                     ", want UTF-8 text");
      }
      rest.remove_prefix(bytes);
    }
  }
  return Status();
}

Status check_ends(const SamplingParams& params, std::int32_t vocab) {
  if (params.stop_token_ids.size() > kMaxStopTokenIds) {
    return error(Code::kInvalidArgument, "stop_token_ids has ", params.stop_token_ids.size(), " ids, want at most ",
                 kMaxStopTokenIds);
  }
  for (const std::int32_t id : params.stop_token_ids) CADRE_TRY(check_token("stop_token_ids", id, vocab));
  if (params.max_tokens && *params.max_tokens < 1) return refuse("max_tokens", *params.max_tokens, "at least 1");
  if (params.min_tokens < 0) return refuse("min_tokens", params.min_tokens, "at least 0");
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    return error(Code::kInvalidArgument, "min_tokens is ", params.min_tokens, ", want at most max_tokens, which is ",
                 *params.max_tokens);
  }
  return check_stop(params.stop);
}

}  // namespace

Status validate(const SamplingParams& params, std::int32_t vocab) {
  const auto finite = [](double x) { return std::isfinite(x); };
  if (!finite(params.temperature) || params.temperature < 0) {
    return refuse("temperature", params.temperature, "a finite number of at least 0 (0 is greedy)");
  }
  if (params.top_k < -1) return refuse("top_k", params.top_k, "at least 1, or 0 or -1 for all tokens");
  CADRE_TRY(check_range("top_p", params.top_p, 0, 1, "between 0 and 1"));
  CADRE_TRY(check_range("min_p", params.min_p, 0, 1, "between 0 and 1"));
  if (!finite(params.repetition_penalty) || params.repetition_penalty <= 0) {
    return refuse("repetition_penalty", params.repetition_penalty, "a finite number above 0 (1 is none)");
  }
  CADRE_TRY(check_range("presence_penalty", params.presence_penalty, -2, 2, "between -2 and 2"));
  CADRE_TRY(check_range("frequency_penalty", params.frequency_penalty, -2, 2, "between -2 and 2"));
  for (const auto& [id, bias] : params.logit_bias) {
    CADRE_TRY(check_token("logit_bias", id, vocab));
    if (!(bias >= -100 && bias <= 100)) {
      return error(Code::kInvalidArgument, "logit_bias of token ", id, " is ", bias, ", want between -100 and 100");
    }
  }
  if (params.logprobs && (*params.logprobs < 0 || *params.logprobs > kMaxLogprobs)) {
    return error(Code::kInvalidArgument, "logprobs is ", *params.logprobs, ", want between 0 and ", kMaxLogprobs);
  }
  return check_ends(params, vocab);
}

SamplingParams resolve(const SamplingRequest& request, const GenerationDefaults& defaults) {
  SamplingParams params;
  const bool file_samples = defaults.do_sample.value_or(false);
  const bool filtered = request.top_k.value_or(0) > 0 || request.top_p.value_or(1) < 1 || request.min_p.value_or(0) > 0;
  if (request.temperature || file_samples || filtered) {
    double otherwise = defaults.temperature.value_or(1);
    if (otherwise == 0 && !file_samples) otherwise = 1;  // the file is greedy twice over; the request is not
    params.temperature = request.temperature.value_or(otherwise);
  }
  params.top_k = request.top_k.value_or(defaults.top_k.value_or(file_samples ? 50 : 0));
  params.top_p = request.top_p.value_or(defaults.top_p.value_or(1));
  params.min_p = request.min_p.value_or(defaults.min_p.value_or(0));
  // Off where valid; a value out of range stays, for validate to refuse.
  if (params.temperature == 0) {
    if (params.top_k >= -1) params.top_k = 0;
    if (params.top_p >= 0 && params.top_p <= 1) params.top_p = 1;
    if (params.min_p >= 0 && params.min_p <= 1) params.min_p = 0;
  }
  params.repetition_penalty = request.repetition_penalty.value_or(defaults.repetition_penalty.value_or(1));
  params.presence_penalty = request.presence_penalty.value_or(0);
  params.frequency_penalty = request.frequency_penalty.value_or(0);
  params.logit_bias = request.logit_bias;
  params.seed = request.seed;
  params.stop = request.stop;
  params.stop_token_ids = request.stop_token_ids;
  params.eos_token_ids = defaults.eos_token_ids;
  params.ignore_eos = request.ignore_eos.value_or(false);
  params.include_stop = request.include_stop.value_or(false);
  params.max_tokens = request.max_tokens ? request.max_tokens : defaults.max_new_tokens;
  params.min_tokens = request.min_tokens.value_or(defaults.min_new_tokens.value_or(0));
  if (!request.min_tokens && params.max_tokens) {
    params.min_tokens = std::min(params.min_tokens, std::max(*params.max_tokens, 0));
  }
  params.logprobs = request.logprobs;
  return params;
}

std::uint64_t fresh_seed() {
  std::random_device entropy;
  return std::uint64_t{entropy()} << 32 | entropy();
}

}  // namespace cadre
