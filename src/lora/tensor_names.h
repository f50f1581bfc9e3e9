// The names of tensors in adapter files, taken apart, and the modules of the model that they mean.
//
//   base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.default.weight
//   ^ optional       ^ module                           ^ part  ^ optional; of lora_A and lora_B `.weight` alone too
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lora/canonical.h"

namespace cadre {

enum class TensorPart : std::uint8_t {
  kLoraA,
  kLoraB,
  kEmbeddingA,
  kEmbeddingB,
  kWeight,           // "<module>.weight": takes the place of the base weight
  kSavedWeight,      // "<module>.modules_to_save[.<adapter>].weight": the same
  kBaseLayerWeight,  // "<module>.base_layer.weight": PEFT's copy of the base weight beside a delta
  kBias,             // "<module>.bias", "<module>.lora_B.bias"
  kMagnitude,        // DoRA's "<module>.lora_magnitude_vector"
  kOther,
};

struct TensorName {
  std::string_view module;  // into the tensor's name
  TensorPart part = TensorPart::kOther;
};
TensorName parse_tensor_name(std::string_view name);

// The last part of a dotted path.
std::string_view last_component(std::string_view path);

// What a module path of the file means: a dense module; or a routed experts module and what follows its path ("",
// "base_layer", "3.up_proj"; at most two parts).
struct ModuleRef {
  int dense = -1, experts = -1;  // indices into AdapterTargets
  std::string rest;              // with the model's names for its parts
};

class ModuleIndex {
 public:
  explicit ModuleIndex(const AdapterTargets& targets);  // `targets` must outlive this

  // Nothing if the model has no such module under any of its names.
  std::optional<ModuleRef> find(std::string_view path) const;
  // For messages: the module of the model most like `path`, or what is likely wrong.
  std::string hint(std::string_view path) const;

 private:
  std::optional<ModuleRef> find_exact(std::string_view path) const;

  const AdapterTargets& targets_;
  std::unordered_map<std::string_view, int> dense_, experts_;
};

}  // namespace cadre
