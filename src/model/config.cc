#include "model/config.h"

#include <utility>

#include "base/result.h"
#include "model/config_overrides.h"
#include "model/families/family.h"

namespace cadre {
namespace {

constexpr std::pair<std::string_view, Activation> kActivations[] = {
    {"silu", Activation::kSilu},          {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},          {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh},  {"gelu_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh}, {"relu2", Activation::kRelu2},
};

}  // namespace

Result<std::int64_t> config_int(const Json& json, std::initializer_list<std::string_view> keys, std::int64_t min,
                                std::int64_t max) {
  std::string_view found;
  std::int64_t value = 0;
  for (const std::string_view key : keys) {
    if (!json.has(key)) continue;
    CADRE_ASSIGN(const std::int64_t got, json.get_int(key, min, max));
    if (!found.empty() && got != value) {
      return error(Code::kInvalidFile, json.where(found), " is ", value, " and ", key, " is ", got,
                   ", which mean the same; want one of them, or equal ones");
    }
    found = key;
    value = got;
  }
  if (!found.empty()) return value;
  return json.get_int(*keys.begin(), min, max);
}

Result<float> config_float(const Json& json, std::string_view key, double otherwise, double min, double max) {
  CADRE_ASSIGN(const double value, json.get_double_or(key, otherwise));
  if (!(value >= min && value <= max)) {  // NaN is neither
    return error(Code::kInvalidFile, json.where(key), " is ", value, ", want a number in [", min, ", ", max, "]");
  }
  return static_cast<float>(value);
}

Result<float> config_epsilon(const Json& json, std::string_view key, double otherwise) {
  return config_float(json, key, otherwise, 0, 1);
}

Result<Activation> config_activation(const Json& json, std::string_view key, std::string_view otherwise) {
  CADRE_ASSIGN(const std::string name, json.get_string_or(key, otherwise));
  std::string known;
  for (const auto& [text, kind] : kActivations) {
    if (text == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  return error(Code::kUnsupported, json.where(key), " is '", name, "', want one of: ", known);
}

namespace {

Result<ModelConfig> parse_overridden(const Json& json_of_file) {
  ModelConfig config;
  const Json outer = json_of_file.watched();
  config.json = config.whole = outer;
  CADRE_ASSIGN(config.model_type, outer.get_string("model_type"));
  for (const std::string_view key : {"text_config", "llm_config", "language_config"}) {
    if (!outer.has(key) || find_family(config.model_type).ok()) continue;
    config.wrapper = config.model_type;
    config.text_key = key;
    CADRE_ASSIGN(config.json, outer.get_object(key));
    CADRE_ASSIGN(config.model_type, config.json.get_string_or("model_type", config.wrapper + "_text"));
    break;
  }
  const Json& json = config.json;
  // A wrapper's config says what holds of the whole on the outside, and published ones say it inside as well.
  CADRE_ASSIGN(config.quantisation, read_quantisation(outer.has("quantization_config") ? outer : json));
  CADRE_ASSIGN(config.hidden, config_int(json, {"hidden_size"}));
  CADRE_ASSIGN(config.vocab, config_int(json, {"vocab_size"}));
  CADRE_ASSIGN(config.max_context, json.get_int_or("max_position_embeddings", 2048, 1, kMaxConfigSize));
  for (const Json* part : {&json, &outer}) {
    // LFM2 says tie_embedding. A wrapper's two may differ, since one of them is a default: what ties counts, and a
    // stored head always does.
    for (const std::string_view key : {"tie_word_embeddings", "tie_embedding"}) {
      if (!part->has(key)) continue;
      CADRE_ASSIGN(const bool tied, part->get_bool(key));
      config.tied_embeddings = config.tied_embeddings.value_or(false) || tied;
    }
  }
  const Json& with_eos = json.has("eos_token_id") ? json : outer;
  if (const Json* eos = with_eos.find("eos_token_id"); eos != nullptr && !eos->is_null()) {
    if (eos->is_array()) {
      for (std::size_t i = 0; i < eos->items().size(); ++i) {
        const std::string what = with_eos.where("eos_token_id[" + std::to_string(i) + "]");
        CADRE_ASSIGN(const std::int64_t id, eos->items()[i].as_int(what, 0, kMaxConfigSize));
        config.eos_ids.push_back(static_cast<std::int32_t>(id));
      }
    } else {
      CADRE_ASSIGN(const std::int64_t id, with_eos.get_int("eos_token_id", 0, kMaxConfigSize));
      config.eos_ids.push_back(static_cast<std::int32_t>(id));
    }
  }
  return config;
}

}  // namespace

Result<ModelConfig> parse_model_config(const Json& json, const std::string& hf_overrides) {
  CADRE_ASSIGN(const Json overrides, parse_overrides(hf_overrides));
  if (overrides.members().empty()) return parse_overridden(json);
  std::string note = overrides_note(json, overrides);
  Result<ModelConfig> config = parse_overridden(apply_overrides(json, overrides));
  if (!config.ok()) return std::move(config).status().with_context(note);
  config->overrides = set_fields(json, overrides);
  config->overrides_note = std::move(note);
  return config;
}

Result<ModelConfig> read_model_config(const std::string& dir, const std::string& hf_overrides) {
  CADRE_ASSIGN(const Json json, Json::parse_file(dir + "/config.json"));
  if (!json.is_object())
    return error(Code::kInvalidFile, dir, "/config.json: got ", describe(json), ", want an object");
  return parse_model_config(json, hf_overrides);
}

}  // namespace cadre
