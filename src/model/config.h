// What every family's config.json has in common, and readers that accept the field names of transformers 4 and 5.
#pragma once

#include <cadre/moe_spec.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "io/json.h"

namespace cadre {

struct ModelConfig {
  Json json;  // the text model's part of config.json
  std::string model_type;
  std::int64_t hidden = 0, vocab = 0, layers = 0, max_context = 0;
  bool tied_embeddings = false;
  float norm_eps = 1e-6f;
  std::vector<std::int32_t> eos_ids;  // of config.json
};

// Reads dir/config.json. Refuses quantised checkpoints by the method's name.
Result<ModelConfig> read_model_config(const std::string& dir);

// The first of `keys` that is there; an error naming all of them otherwise. Counts and sizes are in [min, 2^31).
Result<std::int64_t> config_int(const Json& json, std::initializer_list<std::string_view> keys, std::int64_t min = 1);

// hidden_act and its like: "silu", "swish", "gelu", "gelu_pytorch_tanh", "relu2", ... An unknown one lists the known.
Result<Activation> config_activation(const Json& json, std::string_view key, std::string_view otherwise);

}  // namespace cadre
