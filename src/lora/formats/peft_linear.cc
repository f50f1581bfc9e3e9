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
  builder.add_format(kPeftLinearFormat.name);
  CADRE_ASSIGN(const std::vector<TensorPair> pairs, pair_up(tensors));
  for (const TensorPair& pair : pairs) {
    const int index = pair.a->ref.dense;
    const DenseTarget& target = builder.targets().dense[static_cast<std::size_t>(index)];
    CADRE_ASSIGN(const LowRank term, plain_term(builder, pair, target.in, target.out, target.module));
    CADRE_TRY(builder.set_delta(index, term, *pair.a));
    builder.count_zero_b(*pair.b);
  }
  return {};
}

}  // namespace

const AdapterFormat kPeftLinearFormat = {"peft linear", claims, read};

}  // namespace cadre
