// Packed experts (packed.h) as Tinker saves them, and SGLang reads them too:
//   w1, w3, w2   gate, up and down
//   w1, w2       up and down of experts without a gate; their w3 is there as a placeholder, a tensor without elements
#include "base/result.h"
#include "lora/formats/packed.h"

namespace cadre {
namespace {

constexpr std::string_view kNames[] = {"w1", "w2", "w3"};

PackedName meaning(std::string_view name, const ExpertsTarget& target) {
  if (name == "w2") return {.down = true};
  if (!target.gated) return {.up = name == "w1"};
  return {.gate = name == "w1", .up = name == "w3"};
}

bool claims(const FileTensor& tensor, const AdapterTargets&) { return is_packed(tensor, kNames); }

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  std::vector<const FileTensor*> filled;
  for (const FileTensor* tensor : tensors) {
    if (!tensor->empty()) {
      filled.push_back(tensor);
      continue;
    }
    const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(tensor->ref.experts)];
    if (meaning(tensor->ref.rest, target).any()) {
      return error(Code::kInvalidFile, quoted(*tensor), " is ", describe(*tensor->info), ", without elements, and '",
                   target.module, "' has this projection: the file is not complete");
    }
  }
  return read_packed(builder, filled, kTinkerExpertsFormat.name, meaning);
}

}  // namespace

const AdapterFormat kTinkerExpertsFormat = {"tinker experts", claims, read, true};

}  // namespace cadre
