#include "lora/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/result.h"
#include "io/json.h"

namespace cadre {
namespace {

constexpr std::int64_t kMaxRank = 65'536;  // far above any hidden size
constexpr std::size_t kMaxListed = 200'000;
constexpr std::uint64_t kMaxConfigBytes = 64u << 20;

// Null, false, "", [] and {} are how exporters write "not used".
bool is_set(const Json* value) {
  if (value == nullptr || value->is_null()) return false;
  switch (value->type()) {
    case Json::Type::kBool:
      return value->as_bool("").value();
    case Json::Type::kString:
      return !value->as_string("").value().empty();
    case Json::Type::kArray:
      return !value->items().empty();
    case Json::Type::kObject:
      return !value->members().empty();
    default:
      return true;
  }
}

// Fields that change what an adapter computes in ways not built here, and what to do about each.
struct Refused {
  const char* field;
  const char* what;
  const char* remedy;
};
constexpr Refused kRefused[] = {
    {"use_dora", "DoRA", "merge the adapter into the base weights, or train it without use_dora"},
    {"fan_in_fan_out", "weights stored as [in, out]", "transpose them and set fan_in_fan_out to false"},
    {"lora_bias", "a bias in lora_B", "train the adapter with lora_bias=false, or merge it"},
    {"trainable_token_indices", "trained rows of the embedding", "merge the adapter into the base weights"},
    {"layer_replication", "repeated layers", "save the enlarged model as a checkpoint of its own"},
    {"alora_invocation_tokens", "activated LoRA, which starts at a token sequence", "train an ordinary LoRA adapter"},
    {"use_qalora", "QA-LoRA", "merge the adapter into the base weights"},
    {"use_bdlora", "block-diagonal LoRA", "train an ordinary LoRA adapter"},
    {"arrow_config", "Arrow routing between adapters", "load the adapters it combines one by one"},
    {"kasa_config", "KaSA, which changes the base weights", "merge the adapter into the base weights"},
    {"monteclora_config", "Monte Carlo LoRA", "merge the adapter into the base weights"},
    {"megatron_config", "Megatron's parallel linear layers", "export the adapter for the Hugging Face model"},
};

// Ways to start training that also change the base weights, so that A and B do not fit the published ones.
constexpr const char* kBaseChangingInits[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

// Fields that do not change what a trained adapter computes, or are read elsewhere in this file.
const std::set<std::string_view>& known_fields() {
  static const std::set<std::string_view> kFields = {"auto_mapping",
                                                     "base_model_name_or_path",
                                                     "bias",
                                                     "corda_config",
                                                     "ensure_weight_tying",
                                                     "eva_config",
                                                     "exclude_modules",
                                                     "inference_mode",
                                                     "init_lora_weights",
                                                     "layers_pattern",
                                                     "layers_to_transform",
                                                     "loftq_config",
                                                     "lora_alpha",
                                                     "lora_dropout",
                                                     "lora_ga_config",
                                                     "megatron_core",
                                                     "modules_to_save",
                                                     "alpha_pattern",
                                                     "peft_type",
                                                     "peft_version",
                                                     "qalora_group_size",
                                                     "r",
                                                     "rank_pattern",
                                                     "revision",
                                                     "runtime_config",
                                                     "target_modules",
                                                     "target_parameters",
                                                     "task_type",
                                                     "use_rslora",
                                                     "velora_config"};
  return kFields;
}

Status refuse_unsupported(const Json& json) {
  CADRE_ASSIGN(const std::string type, json.get_string("peft_type"));
  if (type != "LORA") {
    return error(Code::kUnsupported, json.where("peft_type"), " is '", type,
                 "', want 'LORA'; other kinds of adapter can only be merged into the base weights first");
  }
  for (const Refused& refused : kRefused) {
    if (is_set(json.find(refused.field))) {
      return error(Code::kUnsupported, json.where(refused.field), " is set: ", refused.what, " is not supported; ",
                   refused.remedy);
    }
  }
  CADRE_ASSIGN(const std::string bias, json.get_string_or("bias", "none"));
  if (bias != "none") {
    return error(Code::kUnsupported, json.where("bias"), " is '", bias,
                 "', want 'none': trained biases are not supported; train with bias='none', or merge the adapter");
  }
  if (const Json* init = json.find("init_lora_weights"); init != nullptr && init->is_string()) {
    std::string how = init->as_string("").value();
    std::transform(how.begin(), how.end(), how.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    for (const char* changing : kBaseChangingInits) {
      if (how.rfind(changing, 0) == 0) {
        return error(Code::kUnsupported, json.where("init_lora_weights"), " is '", how,
                     "', which changes the base weights; convert the adapter with save_pretrained(..., "
                     "path_initial_model_for_weight_conversion=...)");
      }
    }
  }
  return {};
}

Result<std::vector<std::string>> string_list(const Json& json, std::string_view key) {
  if (!json.has(key)) return std::vector<std::string>();
  CADRE_ASSIGN(std::vector<std::string> list, json.get_string_list(key));
  if (list.size() > kMaxListed) {
    return error(Code::kLimitExceeded, json.where(key), " has ", list.size(), " entries, want at most ", kMaxListed);
  }
  return list;
}

// PEFT writes numbers; some exporters write 16.0 for 16.
Result<int> rank_of(const Json& value, const std::string& what) {
  CADRE_ASSIGN(const std::int64_t rank, value.as_int(what));
  if (rank < 1 || rank > kMaxRank) {
    return error(Code::kInvalidFile, what, " is ", rank, ", want a rank from 1 to ", kMaxRank);
  }
  return static_cast<int>(rank);
}

Result<double> alpha_of(const Json& value, const std::string& what) {
  CADRE_ASSIGN(const double alpha, value.as_double(what));
  if (!std::isfinite(alpha) || std::abs(alpha) > 1e9) {
    return error(Code::kInvalidFile, what, " is ", describe(value), ", want a number from -1e9 to 1e9");
  }
  return alpha;
}

struct PatternMembers {
  std::vector<std::string> keys;
  std::vector<Json> values;
};
Result<PatternMembers> pattern_members(const Json& json, std::string_view key) {
  PatternMembers out;
  if (!json.has(key)) return out;
  CADRE_ASSIGN(const Json object, json.get_object(key));
  for (const Json::Member& member : object.members()) {
    out.keys.push_back(member.first);
    out.values.push_back(member.second);
  }
  return out;
}

}  // namespace

Result<AdapterConfig> AdapterConfig::parse(std::string_view text, std::string_view source) {
  JsonParseOptions options;
  options.max_bytes = kMaxConfigBytes;
  CADRE_ASSIGN(const Json json, Json::parse(text, source, options));
  if (!json.is_object()) return error(Code::kInvalidFile, source, " holds ", describe(json), ", want an object");
  CADRE_TRY(refuse_unsupported(json));

  AdapterConfig config;
  config.source_ = source;
  for (const char* key : {"r", "lora_alpha"}) {
    if (!json.has(key)) {
      return error(Code::kInvalidFile, json.where(key),
                   " is missing: without it the adapter's strength is unknown; take it from the training settings");
    }
  }
  CADRE_ASSIGN(config.rank_, rank_of(*json.find("r"), json.where("r")));
  CADRE_ASSIGN(config.alpha_, alpha_of(*json.find("lora_alpha"), json.where("lora_alpha")));
  CADRE_ASSIGN(config.rslora_, json.get_bool_or("use_rslora", false));
  CADRE_ASSIGN(config.ensure_weight_tying_, json.get_bool_or("ensure_weight_tying", false));

  CADRE_ASSIGN(PatternMembers ranks, pattern_members(json, "rank_pattern"));
  for (std::size_t i = 0; i < ranks.keys.size(); ++i) {
    CADRE_ASSIGN(const int rank,
                 rank_of(ranks.values[i], json.where("rank_pattern") + " entry '" + ranks.keys[i] + "'"));
    config.rank_values_.push_back(rank);
  }
  CADRE_ASSIGN(config.rank_keys_, KeyPatterns::compile(std::move(ranks.keys), json.where("rank_pattern")));
  CADRE_ASSIGN(PatternMembers alphas, pattern_members(json, "alpha_pattern"));
  for (std::size_t i = 0; i < alphas.keys.size(); ++i) {
    CADRE_ASSIGN(const double alpha,
                 alpha_of(alphas.values[i], json.where("alpha_pattern") + " entry '" + alphas.keys[i] + "'"));
    config.alpha_values_.push_back(alpha);
  }
  CADRE_ASSIGN(config.alpha_keys_, KeyPatterns::compile(std::move(alphas.keys), json.where("alpha_pattern")));

  if (const Json* targets = json.find("target_modules"); targets != nullptr && !targets->is_string()) {
    CADRE_ASSIGN(config.target_modules_, string_list(json, "target_modules"));
  }
  CADRE_ASSIGN(config.target_parameters_, string_list(json, "target_parameters"));
  config.parameter_set_.insert(config.target_parameters_.begin(), config.target_parameters_.end());
  CADRE_ASSIGN(config.modules_to_save_, string_list(json, "modules_to_save"));

  const auto refused_fields = [](std::string_view key) {
    return std::any_of(std::begin(kRefused), std::end(kRefused), [&](const Refused& r) { return key == r.field; });
  };
  for (const Json::Member& member : json.members()) {
    if (!known_fields().contains(member.first) && !refused_fields(member.first) && is_set(&member.second)) {
      config.unknown_fields_.push_back(member.first);
    }
  }
  return config;
}

Result<AdapterConfig::Term> AdapterConfig::term(std::string_view name, std::string_view also) const {
  const auto find = [&](const KeyPatterns& keys) -> Result<std::optional<std::size_t>> {
    if (keys.keys().empty()) return std::optional<std::size_t>();
    CADRE_ASSIGN(const std::optional<std::size_t> match, keys.first_match(name));
    if (match || also.empty() || also == name) return match;
    return keys.first_match(also);
  };
  CADRE_ASSIGN(const std::optional<std::size_t> rank_at, find(rank_keys_));
  CADRE_ASSIGN(const std::optional<std::size_t> alpha_at, find(alpha_keys_));
  Term term;
  term.rank = rank_at ? rank_values_[*rank_at] : rank_;
  term.alpha = alpha_at ? alpha_values_[*alpha_at] : alpha_;
  term.scale = static_cast<float>(term.alpha / (rslora_ ? std::sqrt(double(term.rank)) : double(term.rank)));
  return term;
}

bool AdapterConfig::targets_parameter(std::string_view name) const {
  if (parameter_set_.empty()) return false;
  for (std::string_view end = name;; end.remove_prefix(end.find('.') + 1)) {
    if (parameter_set_.contains(std::string(end))) return true;
    if (end.find('.') == std::string_view::npos) return false;
  }
}

}  // namespace cadre
