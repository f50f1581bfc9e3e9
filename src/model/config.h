// What every family's config.json has in common, and readers that accept the field names of transformers 4 and 5.
#pragma once

#include <cadre/moe_spec.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/quantised.h"

namespace cadre {

struct ModelConfig {
  Json json;       // the text model's part of config.json; watched, see refuse_unknown_fields
  Json whole;      // what that is part of
  Json overrides;  // fields of `whole` that were set from outside
  std::string overrides_note;
  std::string model_type;
  std::int64_t hidden = 0, vocab = 0, layers = 0, max_context = 0;
  // Whether the head is the embedding's table; where the config does not say, the file's tensors do.
  std::optional<bool> tied_embeddings;
  float norm_eps = 1e-6f;
  std::vector<std::int32_t> eos_ids;  // of config.json
  Quantisation quantisation;          // of the weights in the files
  std::string wrapper;                // model_type of the multimodal model whose text part this is; empty: none
  std::string text_key;               // under which that model's config has it
};

// Limits on what a config may say, well above every published model: sizes fit in an int, and products of two in 64
// bits with room to add several.
constexpr std::int64_t kMaxConfigSize = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxLayers = 65536, kMaxExperts = 65536;

// Reads dir/config.json, with the fields of `hf_overrides` (JSON, see config_overrides.h; may be empty) in place. Of a
// multimodal model that holds a language model's config in `text_config` (or llm_config or language_config), that one.
// Refuses ways of quantising that are not read by the method's name.
Result<ModelConfig> read_model_config(const std::string& dir, const std::string& hf_overrides = {});
// The same of a parsed file.
Result<ModelConfig> parse_model_config(const Json& json, const std::string& hf_overrides = {});

// What has several names: the value of those that are there, in [min, max], which must agree; where none is, the error
// names the first, today's name.
Result<std::int64_t> config_int(const Json& json, std::initializer_list<std::string_view> keys, std::int64_t min = 1,
                                std::int64_t max = kMaxConfigSize);
// A finite number in [min, max], or `otherwise` where it is absent or null.
Result<float> config_float(const Json& json, std::string_view key, double otherwise, double min, double max);
// The epsilon of a norm.
Result<float> config_epsilon(const Json& json, std::string_view key, double otherwise);

// hidden_act and its like: "silu", "swish", "gelu", "gelu_pytorch_tanh", "relu2", ... An unknown one lists the known.
Result<Activation> config_activation(const Json& json, std::string_view key, std::string_view otherwise);

}  // namespace cadre
