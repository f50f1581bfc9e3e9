// Adapter folders written for a test, and the values of the terms read back.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/float16.h"
#include "io/safetensors.h"
#include "lora/adapter_reader.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre {

struct Matrix {
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  float& operator()(std::int64_t i, std::int64_t k) { return values[static_cast<std::size_t>(i * shape[1] + k)]; }
  float operator()(std::int64_t i, std::int64_t k) const { return values[static_cast<std::size_t>(i * shape[1] + k)]; }
  friend bool operator==(const Matrix&, const Matrix&) = default;
};

// Values that are all different and depend on `seed`.
inline Matrix numbered(std::int64_t rows, std::int64_t columns, int seed) {
  Matrix m{{rows, columns}, std::vector<float>(static_cast<std::size_t>(rows * columns))};
  for (std::size_t i = 0; i < m.values.size(); ++i) m.values[i] = static_cast<float>(seed * 10'000 + int(i) + 1) / 64;
  return m;
}

using Tensors = std::map<std::string, Matrix>;

// Names are written as given.
inline void write_adapter(const std::filesystem::path& folder, const std::string& config, const Tensors& tensors) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << config;
  std::vector<NamedTensor> named;
  for (const auto& [name, matrix] : tensors) {
    named.push_back({name, DType::kF32, matrix.shape, std::as_bytes(std::span(matrix.values))});
  }
  EXPECT_THAT(write_safetensors(folder / "adapter_model.safetensors", named), Succeeds());
}

inline std::string config_text(const std::string& more = "", int rank = 2, double alpha = 4) {
  return "{\"peft_type\": \"LORA\", \"r\": " + std::to_string(rank) + ", \"lora_alpha\": " + std::to_string(alpha) +
         (more.empty() ? "" : ", " + more) + "}";
}

inline Result<std::shared_ptr<const Adapter>> read_tensors(const AdapterTargets& targets, const std::string& config,
                                                           const Tensors& tensors, const AdapterOptions& options = {}) {
  const TempDir folder;
  write_adapter(folder.path(), config, tensors);
  return read_adapter(folder.path().string(), "test", targets, options);  // the map outlives the folder
}

// The elements of a float32, F16 or BF16 view, whatever its strides.
inline Matrix values_of(const View& view) {
  Matrix m{{view.dim(0), view.dim(1)}, {}};
  for (std::int64_t i = 0; i < view.dim(0); ++i) {
    for (std::int64_t k = 0; k < view.dim(1); ++k) {
      const std::int64_t at = i * view.step(0) + k * view.step(1);
      m.values.push_back(view.dtype == DType::kF32    ? ptr<const float>(view)[at]
                         : view.dtype == DType::kBF16 ? to_float(ptr<const Bf16>(view)[at])
                                                      : to_float(ptr<const F16>(view)[at]));
    }
  }
  return m;
}

}  // namespace cadre
