// Random PEFT adapters for a model, in the layouts in which such adapters are published.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/canonical.h"

namespace cadre {

struct SynthAdapter {
  std::string name;
  int rank = 16;
  std::string layout;  // of adapter_layouts()
  std::uint64_t seed = 0;
  std::string base_model;  // for base_model_name_or_path
};

// "stacked", "per_expert", "megatron", "sglang", "tinker"
const std::vector<std::string>& adapter_layouts();

// An unknown name lists the known.
Status check_adapter_layout(const std::string& name);

// Writes folder/adapter_config.json and adapter_model.safetensors: lora_A and lora_B, bfloat16, for every linear module
// but routers and the head (as PEFT's "all-linear"), and for the experts of every MoE layer. lora_alpha is the rank.
// Refuses a layout of another name and a rank below 1.
Status write_synth_adapter(const std::filesystem::path& folder, const AdapterTargets& targets,
                           const SynthAdapter& adapter);

}  // namespace cadre
