// Fields of config.json that nothing reads: they are refused, unless it is known that they change nothing of what the
// model computes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/config.h"

namespace cadre {

// After the family is built: refuses, by name and value, every field of the text model's config and of its quantisation
// that nobody looked up, but for harmless ones, those that the family lists ("a", or "a.b" for field b of object a; a
// star at either end stands for any text), and those whose value says nothing: null, false, empty. So is
// every override that nothing looked up, whatever its name and value, unless it takes out what the file has.
Status refuse_unknown_fields(const ModelConfig& config, std::span<const std::string> ignored_by_family);

// Whether no family's mathematics depends on a field of this name, wherever in the config it stands.
bool is_harmless_field(std::string_view name);

}  // namespace cadre
