// A model folder in memory: read from a golden, changed by a test, written to another folder.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"

namespace cadre::test {

struct HostTensor {
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::vector<float> values() const;  // of BF16, F16 and F32
};

struct ModelFiles {
  Json config;
  std::map<std::string, HostTensor> tensors;

  // Reads config.json and model.safetensors.
  static ModelFiles read(const std::filesystem::path& dir);

  void set(const std::string& key, Json value);
  void remove(const std::string& key);

  // Writes both. The folder is made where it is not there.
  void write(const std::filesystem::path& dir) const;
  void write_config(const std::filesystem::path& dir) const;
  void write_weights(const std::filesystem::path& file) const;
  // model-0000i-of-0000n.safetensors and the index; tensor i of the sorted names goes to shard i mod n.
  void write_shards(const std::filesystem::path& dir, int shards) const;
};

// A float32 value as `dtype` stores it; for F16 it must be 0 or a normal number there that needs no rounding.
HostTensor converted(const HostTensor& tensor, DType dtype);

// The expert matrices of every layer, stacked as transformers 5 holds them: `up_parts` one after the other into
// `stacked_up` [E, sum of rows, in], `down` into `stacked_down`. `modules` lists what ends in ".experts".
void stack_experts(ModelFiles& files, const std::vector<std::string>& up_parts, const std::string& down,
                   const std::string& stacked_up, const std::string& stacked_down = "down_proj");

// Tensors whose names have `part`.
void erase_tensors(ModelFiles& files, const std::string& part);

// The first `from` in every tensor's name made `to`.
void rename_tensors(ModelFiles& files, const std::string& from, const std::string& to);

// A file whose tensors lie at odd addresses: the header is not padded, and its length is odd.
void write_misaligned(const ModelFiles& files, const std::filesystem::path& file);

}  // namespace cadre::test
