// How the next token is chosen: what a request may set, what a model's generation_config.json sets, and how the two
// become the parameters of one sequence.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cadre {

// Everything that decides one sequence's tokens. Each field names where its formula comes from; x is a token's logit,
// T the temperature. The steps run in this order, which is vLLM's: end tokens masked below min_tokens, logit_bias,
// penalties, temperature, min_p, top_k, top_p, draw.
struct SamplingParams {
  // x / T. 0 is greedy: the token with the highest logit after bias and penalties, the lowest id among equals. The
  // default of an empty struct is greedy.
  double temperature = 0;
  // Keep the k tokens with the highest logits; 0 or -1 keeps all. Hugging Face's TopKLogitsWarper, but exactly k: among
  // equal logits at the border the lower ids stay, so that 1 always equals greedy.
  std::int32_t top_k = 0;
  // Keep the fewest most likely tokens whose probabilities reach top_p (nucleus sampling, Holtzman et al. 2019): a
  // token stays if those before it sum to less than top_p. Probabilities are those after min_p and top_k. At least one
  // token stays, so 0 keeps the best; 1 keeps all.
  double top_p = 1;
  // Keep tokens whose probability is at least min_p times the highest (Nguyen et al. 2024), after temperature; 0 keeps
  // all.
  double min_p = 0;

  // CTRL (Keskar et al. 2019) as in Hugging Face and vLLM: for every token of the prompt or the output, x / r where
  // x > 0 and x * r elsewhere; 1 is none. Also applies when greedy, as do the next two.
  double repetition_penalty = 1;
  // OpenAI: x - presence_penalty for every token of the output (the prompt does not count).
  double presence_penalty = 0;
  // OpenAI: x - count * frequency_penalty, where count is how often the output has the token.
  double frequency_penalty = 0;
  // OpenAI: x + bias by token id, each within [-100, 100].
  std::map<std::int32_t, float> logit_bias;

  // The noise is a function of seed, choice and position only. Needed when temperature is above 0: who accepts a
  // request without a seed draws one (fresh_seed), so that unseeded requests differ.
  std::optional<std::uint64_t> seed;

  // Generation ends where one of these appears in the output's text; the text ends before it.
  std::vector<std::string> stop;
  // Generation ends after one of these tokens, even with ignore_eos.
  std::vector<std::int32_t> stop_token_ids;
  // The model's own end tokens: generation ends after one of them, unless ignore_eos.
  std::vector<std::int32_t> eos_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // leave the matched stop string in the text

  std::optional<std::int32_t> max_tokens;  // of output; absent: until the context is full
  std::int32_t min_tokens =
      0;  // before these, stop_token_ids and eos_token_ids cannot be drawn and stop is not looked for

  // Log-probabilities to report, of the model's own logits before any step above: absent none, 0 the chosen token's, n
  // also those of the n most likely.
  std::optional<std::int32_t> logprobs;
};

// Limits of validate. Generous for people, and small enough that a request cannot make every token slow.
inline constexpr std::size_t kMaxStopStrings = 64;
inline constexpr std::size_t kMaxStopBytes = 4096;
inline constexpr std::size_t kMaxStopTokenIds = 4096;
inline constexpr std::int32_t kMaxLogprobs = 100;

// Refuses what sampling cannot honour as written, naming field, value and what is wanted. `vocab` is the number of
// logits.
[[nodiscard]] CADRE_API Status validate(const SamplingParams& params, std::int32_t vocab);

// What a request sets; a field left absent takes the model's default.
struct SamplingRequest {
  std::optional<double> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::map<std::int32_t, float> logit_bias;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  std::optional<bool> ignore_eos;
  std::optional<bool> include_stop;
  std::optional<std::int32_t> max_tokens;
  std::optional<std::int32_t> min_tokens;
  std::optional<std::int32_t> logprobs;
};

// What generation_config.json says. Absent fields are absent in the file, or null.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<std::int32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::int32_t> max_new_tokens;
  std::optional<std::int32_t> min_new_tokens;
  std::vector<std::int32_t> eos_token_ids;  // add config.json's: both end a sequence
  std::optional<std::int32_t> bos_token_id;
  std::optional<std::int32_t> pad_token_id;
};

// The parameters of a sequence. What the request sets always wins. For the rest:
// - Tokens are drawn if the request sets a temperature above 0; or if it sets no temperature and either the file has
//   do_sample true or the request sets a filter that is in effect (top_k above 0, top_p below 1, min_p above 0).
//   Otherwise, as in Hugging Face for do_sample false or absent, and always for an explicit temperature of 0, the
//   sequence is greedy, and the filters, which cannot change it, read as off.
// - When drawing, temperature, top_k, top_p and min_p come from the file. Where the file has none: temperature 1, top_p
//   1, min_p 0, and top_k 50 if do_sample is true (Hugging Face's default), off otherwise (a request that asks for
//   sampling on its own means no more than it says). A file's temperature of 0 counts only with do_sample true.
// - repetition_penalty, max_new_tokens, min_new_tokens and eos_token_ids come from the file, greedy or not.
//   min_new_tokens is lowered to a smaller max_tokens of the request.
[[nodiscard]] CADRE_API SamplingParams resolve(const SamplingRequest& request, const GenerationDefaults& defaults);

// A seed from the operating system's entropy.
[[nodiscard]] CADRE_API std::uint64_t fresh_seed();

}  // namespace cadre
