// What an adapter binds, for people and for programs.
#pragma once

#include <string>

#include "io/json.h"
#include "lora/canonical.h"

namespace cadre {

// Fills report.bindings and report.max_rank from the terms.
void add_bindings(const AdapterTargets& targets, Adapter* adapter);

// Several lines, the last ended too. Layers that are alike share a line. These read every element, for what rounding to
// BF16 would change.
std::string report_text(const Adapter& adapter);
Json report_json(const Adapter& adapter);

// Whether an adapter can be used, and why not.
struct AdapterVerdict {
  bool usable = false;
  std::string text;  // for people
  Json json;         // with "usable", "name" and "left_over" always
};
// An adapter that was read and refused is an answer; a folder or file that is not there is an error, and so is a call
// that cannot be honoured.
Result<AdapterVerdict> judge_adapter(const std::string& folder, const std::string& name, const AdapterTargets& targets,
                                     const AdapterOptions& options = {});

}  // namespace cadre
