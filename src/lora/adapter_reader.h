// Reads a PEFT adapter folder (adapter_config.json, adapter_model.safetensors) into canonical form.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "lora/canonical.h"

namespace cadre {

// Every tensor of the file is bound to a module of `targets`, or reading fails and says why. The terms are views of
// one copy of the file in memory, which the adapter keeps; nothing else is copied, except tensors at odd addresses.
// Where tensors bind to nothing, `left_over` gets the names of all of them; the message has the first few.
Result<std::shared_ptr<const Adapter>> read_adapter(const std::string& folder, const std::string& name,
                                                    const AdapterTargets& targets, const AdapterOptions& options = {},
                                                    std::vector<std::string>* left_over = nullptr);

// "orientation=swapped,b_order=expert_major"; may be empty.
//   orientation=auto|peft|swapped  of stacked experts: as PEFT 0.19 and later write them, or as older ones did
//   b_order=peft|expert_major      of stacked experts: expert_major for files of older Unsloth
//   check_weights=true|false       refuse NaN and infinities
Result<AdapterOptions> parse_adapter_options(std::string_view text);

}  // namespace cadre
