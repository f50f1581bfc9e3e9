// Which model to make up: a config, from a file or one of the small ones that come with each family, cut to size.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace cadre {

// A small model of the family, with all its structure; an unknown model_type lists the known.
Result<Json> small_family_config(std::string_view model_type);
// A config.json, wherever it lies.
Result<Json> read_config_file(const std::string& path);
// What is to be made up of it: with the fields of `hf_overrides` (JSON, may be empty), of a multimodal model the text
// part with what the outside says of it, and of that the first `layers` layers.
Result<Json> synth_config(const Json& config, const std::string& hf_overrides, std::optional<std::int64_t> layers);
// The first `layers` layers of the model: counts, lists with an entry for each layer, lists of layers, patterns.
Result<Json> cut_layers(const Json& config, std::int64_t layers);

}  // namespace cadre
