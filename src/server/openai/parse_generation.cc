// The fields that chat and completions share.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "server/openai/parsing.h"

namespace cadre::server {
namespace {

using Kind = KnownField::Kind;

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr double kNumberMax = std::numeric_limits<double>::max();

constexpr std::string_view kNoConstraint =
    "is not supported: this server does not constrain what the model writes; ask for the form in the prompt";

// Sorted by what is done with them. Whatever is in none of the rows below and read by no parser is refused by name.
constexpr KnownField kKnown[] = {
    // Records and billing of OpenAI's own service.
    {"user", Kind::kIgnored, ""},
    {"metadata", Kind::kIgnored, ""},
    {"store", Kind::kIgnored, ""},
    {"service_tier", Kind::kIgnored, ""},
    {"safety_identifier", Kind::kIgnored, ""},
    // Hints about caching and speed. The prefix cache needs none, and neither changes a token.
    {"prompt_cache_key", Kind::kIgnored, ""},
    {"prompt_cache_retention", Kind::kIgnored, ""},
    {"prediction", Kind::kIgnored, ""},
    // Parameters of beam search, which is refused itself.
    {"length_penalty", Kind::kIgnored, ""},
    {"early_stopping", Kind::kIgnored, ""},
    // Only matters where special tokens are shown.
    {"spaces_between_special_tokens", Kind::kIgnored, ""},

    {"skip_special_tokens", Kind::kOnlyTrue,
     "is not true: texts come without special tokens; ask for logprobs to see them"},
    {"include_reasoning", Kind::kOnlyTrue, "is not true: reasoning is a part of the text, which is always complete"},
    {"use_beam_search", Kind::kOnlyOff, "is not supported: there is no beam search; ask for n answers"},
    {"suffix", Kind::kOnlyOff, "is not supported: text is written after the prompt only"},
    {"continue_final_message", Kind::kOnlyOff,
     "is not supported: a reply is a message of its own; use /v1/completions to go on with a text"},
    {"chat_template", Kind::kRefused,
     "is not accepted in a request: the model's or the adapter's own template is used"},
    {"functions", Kind::kOnlyOff, "is the old form of 'tools', which this server takes"},
    {"function_call", Kind::kOnlyOff, "is the old form of 'tool_choice', which this server takes"},
    {"documents", Kind::kOnlyOff, "is not supported: put documents into the messages"},
    {"audio", Kind::kOnlyOff, "is not supported: this server writes text only"},
    {"verbosity", Kind::kRefused, "is not supported: ask for it in the prompt"},
    {"web_search_options", Kind::kRefused, "is not supported: this server does not search"},
    {"truncate_prompt_tokens", Kind::kRefused, "is not supported: shorten the prompt before sending it"},
    {"allowed_token_ids", Kind::kOnlyOff, "is not supported; logit_bias can rule tokens out"},
    {"bad_words", Kind::kOnlyOff, "is not supported; logit_bias can rule tokens out"},
    {"logits_processors", Kind::kOnlyOff, "is not supported: no code comes with a request"},
    {"return_tokens_as_token_ids", Kind::kOnlyOff, "is not supported"},
    {"return_token_ids", Kind::kOnlyOff, "is not supported; /tokenize gives the ids of a text"},
    {"kv_transfer_params", Kind::kOnlyOff, "is not supported"},
    {"guided_json", Kind::kOnlyOff, kNoConstraint},
    {"guided_regex", Kind::kOnlyOff, kNoConstraint},
    {"guided_choice", Kind::kOnlyOff, kNoConstraint},
    {"guided_grammar", Kind::kOnlyOff, kNoConstraint},
    {"guided_decoding_backend", Kind::kOnlyOff, kNoConstraint},
    {"guided_whitespace_pattern", Kind::kOnlyOff, kNoConstraint},
    {"structural_tag", Kind::kOnlyOff, kNoConstraint},
    {"structured_outputs", Kind::kOnlyOff, kNoConstraint},
    {"json_schema", Kind::kOnlyOff, kNoConstraint},
    {"regex", Kind::kOnlyOff, kNoConstraint},
    {"ebnf", Kind::kOnlyOff, kNoConstraint},
    {"grammar", Kind::kOnlyOff, kNoConstraint},
};

template <class T>
std::optional<T> narrow(std::optional<std::int64_t> value) {
  if (!value) return std::nullopt;
  return static_cast<T>(*value);
}

void read_stop(Fields& fields, SamplingRequest& out) {
  if (const Json* stop = fields.any("stop")) {
    const std::span<const Json> items = stop->is_array() ? stop->items() : std::span(stop, 1);
    if (items.size() > kMaxStopStrings) {
      return fields.fail(
          "stop", "has " + std::to_string(items.size()) + " strings, want at most " + std::to_string(kMaxStopStrings));
    }
    for (const Json& item : items) {
      if (!item.is_string()) {
        return fields.fail(
            "stop", (stop->is_array() ? "has " : "is ") + describe(item) + ", want a string or a list of strings");
      }
      out.stop.push_back(*item.as_string("stop"));
      if (out.stop.back().empty()) return fields.fail("stop", "has an empty string, which would stop at once");
      if (out.stop.back().size() > kMaxStopBytes) {
        return fields.fail("stop", "has a string of " + std::to_string(out.stop.back().size()) +
                                       " bytes, want at most " + std::to_string(kMaxStopBytes));
      }
    }
  }
  if (const Json* ids = fields.array("stop_token_ids", kMaxStopTokenIds)) {
    out.stop_token_ids = read_ids(fields, "stop_token_ids", *ids);
  }
}

void read_logit_bias(Fields& fields, const RequestLimits& limits, SamplingRequest& out) {
  const Json* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  if (bias->members().size() > limits.max_logit_bias) {
    return fields.fail("logit_bias", "has " + std::to_string(bias->members().size()) + " tokens, want at most " +
                                         std::to_string(limits.max_logit_bias));
  }
  for (const auto& [key, value] : bias->members()) {
    std::int32_t id = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0) {
      return fields.fail("logit_bias", "has the key " + describe(Json(key)) + ", want a token id such as \"1234\"");
    }
    const double amount = value.is_number() ? *value.as_double("logit_bias") : 1000;
    if (!(amount >= -100 && amount <= 100)) {
      return fields.fail("logit_bias", "of token " + std::to_string(id) + " is " + describe(value) +
                                           ", want a number from -100 to 100");
    }
    if (!out.logit_bias.emplace(id, static_cast<float>(amount)).second) {
      return fields.fail("logit_bias", "names token " + std::to_string(id) + " twice");
    }
  }
}

void read_streaming(Fields& fields, GenerationRequest& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "is only for replies with 'stream': true");
  Fields inner = fields.inside("stream_options", *options);
  out.include_usage = inner.boolean("include_usage").value_or(false);
  out.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  // Padding of chunks against readers of encrypted traffic; OpenAI's own service only.
  static constexpr KnownField kPadding[] = {{"include_obfuscation", Kind::kOnlyOff, "is not supported"}};
  inner.refuse_others(kPadding);
}

void read_response_format(Fields& fields) {
  const Json* format = fields.object("response_format");
  if (format == nullptr) return;
  const Json* type = format->find("type");
  if (type != nullptr && type->is_string() && *type->as_string("type") == "text" && format->members().size() == 1) {
    return;
  }
  const std::string got = type == nullptr ? "absent" : describe(*type);
  fields.fail("response_format", "has the type " + got +
                                     "; only {\"type\": \"text\"} is supported: this server does not constrain what " +
                                     "the model writes");
}

}  // namespace

ApiResult<Json> parse_body(std::string_view body, const RequestLimits& limits) {
  if (body.size() > limits.max_body_bytes) {
    return api_error(413, "the body has " + std::to_string(body.size()) + " bytes, want at most " +
                              std::to_string(limits.max_body_bytes));
  }
  Result<Json> json = Json::parse(body, "body",
                                  {.max_bytes = limits.max_body_bytes,
                                   .max_values = limits.max_values,
                                   .duplicates = JsonParseOptions::Duplicates::kRefuse,
                                   .python_numbers = false,
                                   .code = Code::kInvalidArgument});
  if (!json.ok()) return api_error(400, json.status().message(), "invalid_json");
  if (!json->is_object()) return api_error(400, "the body is " + describe(*json) + ", want an object", "invalid_json");
  return std::move(json).value();
}

std::span<const KnownField> known_generation_fields() { return kKnown; }

std::vector<std::int32_t> read_ids(Fields& fields, std::string_view key, const Json& list) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.items().size());
  for (const Json& item : list.items()) {
    const Result<std::int64_t> id = item.as_int(key, 0, kInt32Max);
    if (!id.ok() || !item.is_int()) {
      fields.fail(key, "has " + describe(item) + ", want token ids, which are integers of at least 0");
      return {};
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

void read_generation(Fields& fields, const RequestLimits& limits, GenerationRequest& out) {
  out.model = fields.text("model").value_or("");
  SamplingRequest& s = out.sampling;
  s.temperature = fields.number("temperature", 0, kNumberMax);
  s.top_p = fields.number("top_p", 0, 1);
  s.top_k = narrow<std::int32_t>(fields.integer("top_k", -1, kInt32Max));
  s.min_p = fields.number("min_p", 0, 1);
  s.presence_penalty = fields.number("presence_penalty", -2, 2);
  s.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  s.repetition_penalty = fields.number("repetition_penalty", 0, kNumberMax);
  if (s.repetition_penalty && *s.repetition_penalty == 0) {
    fields.fail("repetition_penalty", "is 0, want a number above 0 (1 is none)");
  }
  // Every 64-bit pattern is a seed: a negative number is one of its own.
  s.seed = narrow<std::uint64_t>(fields.integer("seed"));
  read_stop(fields, s);
  read_logit_bias(fields, limits, s);
  s.min_tokens = narrow<std::int32_t>(fields.integer("min_tokens", 0, kInt32Max));
  s.ignore_eos = fields.boolean("ignore_eos");
  s.include_stop = fields.boolean("include_stop_str_in_output");

  out.n = static_cast<std::int32_t>(fields.integer("n", 1, limits.max_n).value_or(1));
  if (const auto best_of = fields.integer("best_of", 1); best_of && *best_of != out.n) {
    fields.fail("best_of", "is " + std::to_string(*best_of) + ", want " + std::to_string(out.n) +
                               " as 'n': answers are not ranked here");
  }
  read_streaming(fields, out);
  read_response_format(fields);
  // vLLM's -1, every token of the vocabulary, is out of proportion.
  out.prompt_logprobs = narrow<std::int32_t>(fields.integer("prompt_logprobs", 0, limits.max_logprobs));
  if (out.prompt_logprobs && out.stream) fields.fail("prompt_logprobs", "is not for replies with 'stream': true");
  out.add_special_tokens = fields.boolean("add_special_tokens");
  out.priority = narrow<std::int32_t>(fields.integer("priority", -kInt32Max, kInt32Max)).value_or(0);
  out.cache_salt = fields.text("cache_salt").value_or("");
  if (out.cache_salt.size() > 256) {
    fields.fail("cache_salt", "has " + std::to_string(out.cache_salt.size()) + " bytes, want at most 256");
  }
}

}  // namespace cadre::server
