#include "synth/model_spec.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/config_overrides.h"
#include "model/families/family.h"
#include "model/tensor_plan.h"

namespace cadre {

extern const std::pair<std::string_view, std::string_view> kFamilyConfigs[];  // of families/*.json
extern const std::size_t kFamilyConfigs_count;

namespace {

// Lists of layer indices, as opposed to lists with an entry for each layer.
constexpr std::array<std::string_view, 4> kIndexLists = {"mlp_only_layers", "full_attn_idxs", "moe_layers",
                                                         "no_rope_layer_ids"};
constexpr std::array<std::string_view, 9> kLayerLists = {
    "layer_types", "layers_block_type", "mlp_layer_types",   "no_rope_layers",       "attn_type_list",
    "num_experts", "moe_topk",          "num_shared_expert", "moe_intermediate_size"};
constexpr std::array<std::string_view, 2> kCounts = {"num_hidden_layers", "n_layer"};
constexpr std::array<std::string_view, 1> kPatterns = {"hybrid_override_pattern"};

template <std::size_t N>
bool is_one_of(std::string_view key, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

// How many layers the config says it has: of a hybrid, by its list or pattern.
Result<std::int64_t> layer_count(const Json& config) {
  for (const std::string_view key : kCounts) {
    if (config.has(key)) return config.get_int(key, 1, kMaxLayers);
  }
  for (const std::string_view key : {"layers_block_type", "layer_types"}) {
    if (const Json* list = config.find(key); list != nullptr && list->is_array() && !list->items().empty()) {
      return static_cast<std::int64_t>(list->items().size());
    }
  }
  for (const std::string_view key : kPatterns) {
    if (!config.has(key)) continue;
    CADRE_ASSIGN(const std::string pattern, config.get_string(key));
    return static_cast<std::int64_t>(pattern.size());
  }
  return config.get_int(kCounts[0], 1, kMaxLayers);
}

}  // namespace

Result<Json> small_family_config(std::string_view model_type) {
  for (std::size_t i = 0; i < kFamilyConfigs_count; ++i) {
    if (kFamilyConfigs[i].first != model_type) continue;
    return Json::parse(kFamilyConfigs[i].second, std::string(model_type) + "/config.json");
  }
  return find_family(model_type).status();
}

Result<Json> read_config_file(const std::string& path) {
  CADRE_ASSIGN(const Json json, Json::parse_file(path));
  if (!json.is_object()) return error(Code::kInvalidFile, path, ": got ", describe(json), ", want an object");
  return json;
}

namespace {

Result<Json> text_part(const Json& json) {
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(json));
  if (config.wrapper.empty()) return json;
  // What the outside says of the text part, where the inside does not.
  Json text = config.json;
  for (const std::string_view key : {"quantization_config", "eos_token_id", "dtype", "torch_dtype"}) {
    if (const Json* value = json.find(key); value != nullptr && text.find(key) == nullptr)
      text = text.with(key, *value);
  }
  text = text.with("model_type", config.model_type);
  return config.tied_embeddings ? text.with("tie_word_embeddings", *config.tied_embeddings) : text;
}

}  // namespace

Result<Json> synth_config(const Json& config, const std::string& hf_overrides, std::optional<std::int64_t> layers) {
  CADRE_ASSIGN(const Json overrides, parse_overrides(hf_overrides));
  if (!overrides.members().empty()) {
    // Those that nothing reads are refused while it is known which they are.
    CADRE_ASSIGN(const ModelConfig whole, parse_model_config(config, hf_overrides));
    CADRE_TRY(plan_tensors(whole, "the model").status());
  }
  CADRE_ASSIGN(const Json text, text_part(apply_overrides(config, overrides)));
  return layers ? cut_layers(text, *layers) : text;
}

Result<Json> cut_layers(const Json& config, std::int64_t layers) {
  CADRE_ASSIGN(const std::int64_t all, layer_count(config));
  if (layers < 1 || layers > all) {
    return error(Code::kInvalidArgument, "--layers is ", layers, ", want 1 to ", all, ", which the model has");
  }
  Json out = config;
  for (const auto& [key, value] : config.unwatched_members()) {
    if (is_one_of(key, kCounts) && value.is_number()) {
      out = out.with(key, layers);
    } else if (is_one_of(key, kPatterns) && value.is_string()) {
      CADRE_ASSIGN(const std::string pattern, value.as_string(key));
      out = out.with(key, pattern.substr(0, static_cast<std::size_t>(layers)));
    } else if (value.is_array()) {
      std::vector<Json> kept(value.items().begin(), value.items().end());
      if (is_one_of(key, kIndexLists)) {
        std::erase_if(kept, [&, name = key](const Json& item) {
          const Result<std::int64_t> at = item.as_int(name);
          return at.ok() && *at >= layers;
        });
        out = out.with(key, Json::array(std::move(kept)));
      } else if (is_one_of(key, kLayerLists) && static_cast<std::int64_t>(kept.size()) == all) {
        kept.resize(static_cast<std::size_t>(layers));
        out = out.with(key, Json::array(std::move(kept)));
      }
    }
  }
  return out;
}

}  // namespace cadre
