// A model folder made up from a config: weights, tokenizer, adapters.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/json.h"

namespace cadre {

struct SynthOptions {
  Json config;  // as of read_config_file or small_family_config
  std::filesystem::path out;
  std::uint64_t seed = 0;
  int adapters = 0;  // out/adapters/adapter_0 and so on
  int adapter_rank = 16;
  std::string adapter_layout = "stacked";
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;
  // Called with bytes written and bytes in all. An error ends the writing; what is not complete is removed.
  std::function<Status(std::uint64_t done, std::uint64_t all)> progress;
};

struct SynthReport {
  std::uint64_t bytes = 0;  // of weights
  std::size_t tensors = 0;
  int shards = 1;
  int moe_layers = 0;
  std::vector<std::string> adapters;  // their folders
};

// Writes the weights in the family's published layout (model.safetensors, or shards with an index), then tokenizer and
// adapters, and config.json last, so that a folder that is not complete is no model. Memory stays at a few MiB whatever
// the size. Refuses a folder that is not empty, and a disk without the room; leaves nothing where it fails.
Result<SynthReport> write_synth_model(const SynthOptions& options);

// The small files alone, config.json and, where wanted, a tokenizer: for a model whose weights are made in memory.
Status write_synth_texts(const Json& config, const std::filesystem::path& folder, bool tokenizer);

}  // namespace cadre
