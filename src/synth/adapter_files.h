// Random PEFT adapters for a model, in the layouts in which such adapters are published.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "lora/canonical.h"

namespace cadre {

// What the file of an adapter holds: the same for all of one rank and layout.
struct AdapterTensors {
  std::vector<SafetensorsWriter::Entry> entries;
  std::uint64_t bytes = 0;
  std::set<std::string> modules, parameters;  // of adapter_config.json
};
// Every linear module but routers and the head (as PEFT's "all-linear"), and the experts of every MoE layer, in
// bfloat16. Refuses a layout of another name and a rank below 1.
Result<AdapterTensors> adapter_tensors(const AdapterTargets& targets, int rank, const std::string& layout);

struct SynthAdapter {
  int rank = 16;
  std::uint64_t seed = 0;
  std::string base_model;  // for base_model_name_or_path
};

// "stacked", "per_expert", "megatron", "sglang", "tinker"
const std::vector<std::string>& adapter_layouts();

// An unknown name lists the known.
Status check_adapter_layout(const std::string& name);

// Writes folder/adapter_config.json and adapter_model.safetensors. lora_alpha is the rank. `wrote`: as of
// write_random_file.
Status write_synth_adapter(const std::filesystem::path& folder, const AdapterTensors& tensors,
                           const SynthAdapter& adapter, const std::function<Status(std::uint64_t bytes)>& wrote = {});

}  // namespace cadre
