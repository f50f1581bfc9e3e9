// --hf-overrides: fields of config.json set from outside, as vLLM's flag of that name does.
#pragma once

#include <string>

#include "io/json.h"

namespace cadre {

// The text of an object; empty text is an empty object.
Result<Json> parse_overrides(const std::string& text);

// Whether a field of this name is a model's config of its own: text_config, vision_config and so on.
bool is_nested_config(std::string_view key);

// The config with these fields. Inside a nested model's config fields are set one by one, at any depth; every other
// object takes the place of the one that was there. Null stands for a field that is not there, or for what null means
// to the family.
Json apply_overrides(const Json& config, const Json& overrides);

// Of the overrides those that must mean something: without nulls that take out what the config has, and without what an
// object that takes the place of another has in common with it.
Json set_fields(const Json& config, const Json& overrides);

// "config override: sliding_window = 4096 (was null), text_config.rope_theta = 1e6 (was absent)".
std::string overrides_note(const Json& config, const Json& overrides);

}  // namespace cadre
