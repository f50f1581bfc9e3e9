#include "model/config_fields.h"

#include <algorithm>

#include "base/result.h"
#include "model/config_overrides.h"

namespace cadre {
namespace {

// No name here may be one that some family reads (a test sees to it), nor one that could mean something to a layer:
// what is harmless in one family only, that family lists. A star at either end stands for any text.
constexpr std::string_view kHarmless[] = {
    // What the checkpoint is and which programs made it.
    "architectures", "model_type", "auto_map", "_name_or_path", "name_or_path", "_commit_hash", "transformers_version",
    "_attn_implementation*", "attn_implementation", "_experts_implementation*", "unsloth_*", "use_cache", "model_name",
    "transformers.js_config", "custom_pipelines",
    // Lengths that a tokenizer or a training script was set to; max_position_embeddings counts.
    "max_sequence_length", "model_max_length", "max_seq_len",
    // The type of stored weights is the file's; caches have the backend's.
    "torch_dtype", "*dtype", "use_bfloat16",
    // What a call of transformers returns, and heads for other tasks.
    "return_dict", "output_attentions", "output_hidden_states", "output_router_logits", "is_decoder", "torchscript",
    "problem_type", "id2label", "label2id", "finetuning_task", "task_specific_params", "num_logits_to_keep",
    "chunk_size_feed_forward", "num_labels", "summary_*", "keys_to_ignore_at_inference",
    // Training: initial values, noise, losses.
    "*dropout*", "initializer_*", "init_std", "init_method*", "*aux_loss*", "*z_loss*", "seq_aux",
    "gradient_checkpointing*", "rescale_prenorm_residual", "neftune_noise_alpha",
    // How the work is cut and which kernels do it: sums are the same up to rounding.
    "pretraining_tp", "ep_size", "use_mamba_kernels", "moe_shared_expert_overlap", "_flash_attn_2_enabled",
    "use_flash_attn*", "flash_attn",
    // Layers that predict further tokens, which are not run.
    "num_nextn_predict_layers", "*mtp_*", "use_mtp",
    // Generation: generation_config.json says it.
    "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "diversity_penalty",
    "length_penalty", "exponential_decay_length_penalty", "max_length", "min_length", "max_new_tokens", "num_beams",
    "num_beam_groups", "num_return_sequences", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "early_stopping",
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "output_scores", "return_dict_in_generate",
    "remove_invalid_values",
    // Special tokens, and the tokenizer, which has files of its own.
    "*_token_id", "*_token_ids", "*_token_index", "tokenizer_class", "prefix", "eos_token", "bos_token", "pad_token",
    "padding_side", "chat_template"};

// Of weights that become BF16 on read: the tensors show which modules are stored as they are, and how activations would
// be rounded does not matter to them.
constexpr std::string_view kHarmlessQuantisation[] = {"modules_to_not_convert", "ignored_layers", "scale_fmt",
                                                      "dequantize"};
constexpr std::string_view kQuantisation = "quantization_config";

// Where false is as much of a choice as true.
constexpr std::string_view kFalseCounts[] = {"is_causal",          "causal",           "use_causal_mask", "use_rope",
                                             "scale_attn_weights", "rope_interleave*", "use_rotary*"};

bool matches(std::string_view pattern, std::string_view name) {
  const bool front = pattern.starts_with('*'), back = pattern.size() > 1 && pattern.ends_with('*');
  if (front) pattern.remove_prefix(1);
  if (back) pattern.remove_suffix(1);
  if (front && back) return name.find(pattern) != std::string_view::npos;
  return front ? name.ends_with(pattern) : back ? name.starts_with(pattern) : name == pattern;
}

template <class Patterns>
bool any_matches(const Patterns& patterns, std::string_view name) {
  return std::any_of(std::begin(patterns), std::end(patterns),
                     [&](std::string_view pattern) { return matches(pattern, name); });
}

bool says_nothing(std::string_view name, const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return true;
    case Json::Type::kBool:
      return !value.as_bool(name).value() && !any_matches(kFalseCounts, name);
    case Json::Type::kString:
      return value.as_string(name).value().empty();
    case Json::Type::kArray:
      return value.items().empty();
    case Json::Type::kObject:
      return value.members().empty();
    default:
      return name.ends_with("_multiplier") && value.as_double(name).value() == 1.0;  // what else 1 or 0 means is open
  }
}

std::string joined(std::span<const std::string> path) {
  std::string text;
  for (const std::string& key : path) text += (text.empty() || key.starts_with('[') ? "" : ".") + key;
  return text;
}

std::string one_line(const Json& value) { return value.dump({.non_finite = JsonDumpOptions::NonFinite::kPython}); }

std::string short_value(const Json& value) {
  constexpr std::size_t kLongest = 60;
  const std::string text = one_line(value);
  return text.size() <= kLongest ? text : describe(value);
}

Json without(const Json& object, std::span<const std::string> path) {
  std::vector<Json::Member> kept;
  for (const auto& [key, value] : object.unwatched_members()) {
    if (key != path.front()) {
      kept.emplace_back(key, value);
    } else if (path.size() > 1) {
      kept.emplace_back(key, without(value, path.subspan(1)));
    }
  }
  return Json::object(std::move(kept));
}

Json with_null(const Json& object, std::span<const std::string> path) {
  if (path.size() == 1) return object.with(path.front(), nullptr);
  const Json* inner = object.find(path.front());
  return object.with(path.front(), with_null(inner != nullptr ? *inner : Json::object({}), path.subspan(1)));
}

// As one word of a shell.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

constexpr std::size_t kMostListed = 10;

// What --hf-overrides must say to take these fields out; empty where that is long.
std::string suggestion(const Json& config, const std::vector<Json::Unasked>& unknown) {
  if (unknown.size() > kMostListed) return {};
  Json overrides = Json::object({});
  for (const Json::Unasked& field : unknown) {
    const std::string& top = field.path.front();
    // Of a list, all.
    const auto item =
        std::find_if(field.path.begin() + 1, field.path.end(), [](const auto& key) { return key[0] == '['; });
    const std::span<const std::string> path(field.path.begin(), item);
    if (path.size() == 1 || is_nested_config(top)) {
      overrides = with_null(overrides, path);
    } else {  // an object is replaced as a whole
      const Json* now = overrides.find(top) != nullptr ? overrides.find(top) : config.find(top);
      overrides = overrides.with(top, without(*now, path.subspan(1)));
    }
  }
  constexpr std::size_t kLongest = 1000;
  const std::string text = one_line(overrides);
  return text.size() <= kLongest ? " " + shell_quoted(text) : std::string();
}

Status refuse(const ModelConfig& config, const std::vector<Json::Unasked>& unknown) {
  std::string list;
  for (std::size_t i = 0; i < std::min(unknown.size(), kMostListed); ++i) {
    list += (i ? ", '" : "'") + joined(unknown[i].path) + "' (" + short_value(unknown[i].value) + ")";
  }
  if (unknown.size() > kMostListed) list += " and " + std::to_string(unknown.size() - kMostListed) + " more";
  const bool one = unknown.size() == 1;
  const std::string source = unknown.front().where.substr(0, unknown.front().where.find("field '"));
  return error(Code::kUnsupported, source, one ? "field " : "fields ", list, one ? " is" : " are", " not known to ",
               config.model_type, " and may change what the model computes; if ",
               one ? "it is known that it does" : "it is known that they do", " not, take ", one ? "it" : "them",
               " out with --hf-overrides", suggestion(config.whole, unknown));
}

Status refuse_idle(const ModelConfig& config, const std::vector<std::string>& path, const Json& value) {
  const std::string name = joined(path);
  if (!config.wrapper.empty() && path.front() != config.text_key) {
    const std::string instead = path.size() > 1 || is_harmless_field(name) || is_nested_config(name)
                                    ? std::string("leave it out")
                                    : "give {\"" + config.text_key + "\": {\"" + name + "\": ...}}";
    return error(Code::kInvalidArgument, "--hf-overrides: field '", name, "' (", short_value(value),
                 ") changes nothing: only the text part of this ", config.wrapper, " model is run; ", instead);
  }
  if (is_harmless_field(path.back())) {
    return error(Code::kInvalidArgument, "--hf-overrides: field '", name, "' (", short_value(value),
                 ") changes nothing here: what the model computes does not depend on it; leave it out");
  }
  return error(Code::kInvalidArgument, "--hf-overrides: nothing reads '", name, "' (", short_value(value),
               ") of a model of type ", config.model_type, "; check the name, or leave it out");
}

Status refuse_idle_overrides(const ModelConfig& config, const std::vector<Json::Unasked>& unasked) {
  for (const Json::Unasked& field : unasked) {
    const Json* override = &config.overrides;
    for (const std::string& key : field.path) {
      if (override != nullptr && !override->is_array()) override = override->find(key);  // of a list, all
    }
    if (override != nullptr) CADRE_TRY(refuse_idle(config, field.path, override->is_array() ? field.value : *override));
  }
  return {};
}

}  // namespace

bool is_harmless_field(std::string_view name) { return any_matches(kHarmless, name); }

Status refuse_unknown_fields(const ModelConfig& config, std::span<const std::string> ignored_by_family) {
  const std::vector<Json::Unasked> unasked = config.whole.unasked();
  if (config.overrides.is_object()) CADRE_TRY(refuse_idle_overrides(config, unasked));
  std::vector<Json::Unasked> unknown;
  for (const Json::Unasked& field : unasked) {
    std::span<const std::string> path = field.path;  // within the text part
    const bool in_text = config.wrapper.empty() || path.front() == config.text_key;
    if (!config.wrapper.empty() && in_text) path = path.subspan(1);
    const bool quantisation = path.front() == kQuantisation;
    if (!in_text && !(quantisation && path.size() > 1)) continue;
    const std::string& name = path.back();
    if (is_harmless_field(name) || says_nothing(name, field.value)) continue;
    if (any_matches(ignored_by_family, joined(path))) continue;
    // Said outside as well, where it counts.
    if (quantisation && path.size() == 1) continue;
    if (quantisation && any_matches(kHarmlessQuantisation, name)) continue;
    unknown.push_back(field);
  }
  return unknown.empty() ? Status() : refuse(config, unknown);
}

}  // namespace cadre
