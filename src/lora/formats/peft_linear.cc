// PEFT on a Linear layer:
//   <module>.lora_A.weight  [r, in]
//   <module>.lora_B.weight  [out, r]
#include "lora/formats/format.h"

#include "base/result.h"

namespace cadre {
namespace {

bool claims(const FileTensor& tensor, const AdapterTargets& targets) {
  return (tensor.part == TensorPart::kLoraA || tensor.part == TensorPart::kLoraB) && tensor.ref.dense >= 0 &&
         !targets.dense[static_cast<std::size_t>(tensor.ref.dense)].embedding;
}

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  return read_dense_pairs(builder, tensors, kPeftLinearFormat.name);
}

}  // namespace

const AdapterFormat kPeftLinearFormat = {"peft linear", claims, read};

}  // namespace cadre
