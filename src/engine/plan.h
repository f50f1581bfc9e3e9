#pragma once

#include <cadre/engine.h>

#include "io/json.h"
#include "model/model.h"

namespace cadre {

Json to_json_value(const Plan& plan);
// One object of "layers".
Json to_json_value(const LayerReport& report);
LayerReport to_report(LayerSelection selection);
// {0, 1, 2, 5} -> "0-2,5"
std::string ranges_text(const std::vector<int>& layers);

}  // namespace cadre
