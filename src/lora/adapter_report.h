// What an adapter binds, for people and for programs.
#pragma once

#include <string>

#include "io/json.h"
#include "lora/canonical.h"

namespace cadre {

// Fills report.bindings and report.max_rank from the terms.
void add_bindings(const AdapterTargets& targets, Adapter* adapter);

// Several lines, the last ended too. Layers that are alike share a line.
std::string report_text(const Adapter& adapter);
Json report_json(const Adapter& adapter);

}  // namespace cadre
