// PEFT on an embedding; the names have no ".weight":
//   <module>.lora_embedding_A  [r, vocabulary]
//   <module>.lora_embedding_B  [hidden, r]
#include "lora/formats/format.h"

#include "base/result.h"

namespace cadre {
namespace {

bool claims(const FileTensor& tensor, const AdapterTargets& targets) {
  return (tensor.part == TensorPart::kEmbeddingA || tensor.part == TensorPart::kEmbeddingB) && tensor.ref.dense >= 0 &&
         targets.dense[static_cast<std::size_t>(tensor.ref.dense)].embedding;
}

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  return read_dense_pairs(builder, tensors, kPeftEmbeddingFormat.name);
}

}  // namespace

const AdapterFormat kPeftEmbeddingFormat = {"peft embedding", claims, read};

}  // namespace cadre
