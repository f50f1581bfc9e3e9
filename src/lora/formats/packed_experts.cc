// Packed experts (packed.h) under the names that checkpoints use, as Megatron-Bridge exports them and SGLang reads
// them:
//   gate_up_proj, down_proj             gate and up in one pair
//   gate_proj, up_proj, down_proj       each by itself
//   up_proj, down_proj                  experts without a gate
#include "lora/formats/packed.h"

namespace cadre {
namespace {

constexpr std::string_view kNames[] = {"gate_up_proj", "gate_proj", "up_proj", "down_proj"};

PackedName meaning(std::string_view name, const ExpertsTarget& target) {
  if (name == "down_proj") return {.down = true};
  if (name == "up_proj") return {.up = true};
  if (!target.gated) return {};
  return {.gate = true, .up = name == "gate_up_proj"};
}

bool claims(const FileTensor& tensor, const AdapterTargets&) { return is_packed(tensor, kNames); }

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  return read_packed(builder, tensors, kPackedExpertsFormat.name, meaning);
}

}  // namespace

const AdapterFormat kPackedExpertsFormat = {"packed experts", claims, read};

}  // namespace cadre
