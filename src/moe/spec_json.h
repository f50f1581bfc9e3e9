// Specs and selections as JSON.
#pragma once

#include <cadre/selection.h>

#include "io/json.h"

namespace cadre {

// Fields as to_json writes them; absent ones have LayerSpec's defaults, unknown ones are refused by name.
Result<LayerSpec> read_layer_spec(const Json& json);
Json to_json_value(const LayerSpec& spec);
// Likewise; absent fields have Deployment's defaults. The device is an object of DeviceCaps' fields.
Result<Deployment> read_deployment(const Json& json);
Json to_json_value(const Deployment& deployment);
Json to_json_value(const Policy& policy);
Json to_json_value(const Candidate& candidate);

}  // namespace cadre
