#include "api/c_sampling.h"

#include <string>
#include <vector>

#include "api/boundary.h"

namespace cadre::api {
namespace {

constexpr std::uint32_t kKnownBits = (std::uint32_t{CADRE_SET_INCLUDE_STOP} << 1) - 1;

Status check_array(const void* data, std::size_t count, std::size_t most, std::string_view name) {
  if (count > most) return error(Code::kLimitExceeded, "sampling has ", count, " of ", name, ", want at most ", most);
  if (count > 0 && data == nullptr) return missing(name);
  return {};
}

Result<std::vector<std::string>> read_texts(const char* const* texts, std::size_t count, std::string_view name) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (texts[i] == nullptr) return missing(std::string(name) + "[" + std::to_string(i) + "]");
    out.emplace_back(texts[i]);
  }
  return out;
}

}  // namespace

Result<SamplingRequest> read_sampling(const cadre_sampling* given) {
  SamplingRequest out;
  if (given == nullptr) return out;
  CADRE_ASSIGN(const cadre_sampling s, read_struct(given, "sampling"));
  if ((s.set & ~kKnownBits) != 0) {
    return error(Code::kInvalidArgument, "sampling.set is ", s.set, ", which has bits beyond ", kKnownBits,
                 " that version ", cadre_version(), " does not know");
  }
  const auto take = [&](std::uint32_t bit, auto value, auto& field) {
    if ((s.set & bit) != 0) field = value;
  };
  take(CADRE_SET_TEMPERATURE, s.temperature, out.temperature);
  take(CADRE_SET_TOP_K, s.top_k, out.top_k);
  take(CADRE_SET_TOP_P, s.top_p, out.top_p);
  take(CADRE_SET_MIN_P, s.min_p, out.min_p);
  take(CADRE_SET_REPETITION_PENALTY, s.repetition_penalty, out.repetition_penalty);
  take(CADRE_SET_PRESENCE_PENALTY, s.presence_penalty, out.presence_penalty);
  take(CADRE_SET_FREQUENCY_PENALTY, s.frequency_penalty, out.frequency_penalty);
  take(CADRE_SET_SEED, s.seed, out.seed);
  take(CADRE_SET_MAX_TOKENS, s.max_tokens, out.max_tokens);
  take(CADRE_SET_MIN_TOKENS, s.min_tokens, out.min_tokens);
  take(CADRE_SET_LOGPROBS, s.logprobs, out.logprobs);
  take(CADRE_SET_IGNORE_EOS, s.ignore_eos != 0, out.ignore_eos);
  take(CADRE_SET_INCLUDE_STOP, s.include_stop != 0, out.include_stop);

  constexpr std::size_t kMaxBiases = std::size_t{1} << 20;
  CADRE_TRY(check_array(s.stop, s.stop_count, kMaxStopStrings, "stop"));
  CADRE_TRY(check_array(s.stop_token_ids, s.stop_token_id_count, kMaxStopTokenIds, "stop_token_ids"));
  CADRE_TRY(check_array(s.logit_bias_ids, s.logit_bias_count, kMaxBiases, "logit_bias_ids"));
  CADRE_TRY(check_array(s.logit_bias, s.logit_bias_count, kMaxBiases, "logit_bias"));
  CADRE_ASSIGN(out.stop, read_texts(s.stop, s.stop_count, "stop"));
  out.stop_token_ids.assign(s.stop_token_ids, s.stop_token_ids + s.stop_token_id_count);
  for (std::size_t i = 0; i < s.logit_bias_count; ++i) {
    if (!out.logit_bias.emplace(s.logit_bias_ids[i], s.logit_bias[i]).second) {
      return error(Code::kInvalidArgument, "logit_bias_ids has ", s.logit_bias_ids[i], " twice, want each id once");
    }
  }
  return out;
}

}  // namespace cadre::api
