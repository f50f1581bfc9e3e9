// Whole weights of lm_head or of the embedding, which take the place of the base weight:
//   <module>.weight, <module>.modules_to_save[.<adapter>].weight  of modules_to_save
//   <module>.base_layer.weight                                    the copy of the base weight that PEFT saves when the
//                                                                 module itself has an A and a B
// PEFT loads the second kind into the base weight itself, which a tied module shares; the first belongs to one module.
#include "lora/formats/format.h"

#include "base/result.h"

namespace cadre {
namespace {

bool claims(const FileTensor& tensor, const AdapterTargets& targets) {
  if (tensor.part != TensorPart::kWeight && tensor.part != TensorPart::kSavedWeight &&
      tensor.part != TensorPart::kBaseLayerWeight) {
    return false;
  }
  if (tensor.ref.dense < 0) return false;
  const DenseTarget& target = targets.dense[static_cast<std::size_t>(tensor.ref.dense)];
  return target.embedding || last_component(target.module) == "lm_head";
}

bool is_saved_module(const AdapterConfig& config, const FileTensor& tensor, const DenseTarget& target) {
  for (const std::string& name : config.modules_to_save()) {
    if (tensor.module.ends_with(name) || target.module.ends_with(name)) return true;
  }
  return false;
}

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  builder.add_format(kReplacementFormat.name);
  std::vector<const FileTensor*> shared;
  for (const FileTensor* tensor : tensors) {
    const int index = tensor->ref.dense;
    const DenseTarget& target = builder.targets().dense[static_cast<std::size_t>(index)];
    const std::int64_t rows = target.embedding ? target.in : target.out;
    const std::int64_t columns = target.embedding ? target.out : target.in;
    const View& weight = tensor->view;
    if (weight.rank == 2 && weight.dim(1) == columns && weight.dim(0) != rows) {
      return error(Code::kUnsupported, quoted(*tensor), " is ", describe(*tensor->info), ", and the model has ", rows,
                   " tokens: an adapter that changes the vocabulary is not supported; merge it into the base weights");
    }
    if (weight.rank != 2 || weight.dim(0) != rows || weight.dim(1) != columns) {
      return wrong_shape(*tensor, rows, columns);
    }
    CADRE_TRY(builder.set_replacement(index, weight, *tensor));
    if (tensor->part == TensorPart::kSavedWeight || is_saved_module(builder.config(), *tensor, target)) continue;
    builder.note("'" + tensor->info->name +
                 "' is a whole weight that modules_to_save does not list; it takes the place "
                 "of the model's own");
    shared.push_back(tensor);
  }
  for (const FileTensor* tensor : shared) {
    const DenseTarget& target = builder.targets().dense[static_cast<std::size_t>(tensor->ref.dense)];
    for (std::size_t i = 0; i < builder.targets().dense.size(); ++i) {
      const DenseTarget& other = builder.targets().dense[i];
      const bool partners = other.embedding != target.embedding && (other.tied || target.tied) &&
                            (other.embedding || last_component(other.module) == "lm_head");
      if (!partners || builder.has_replacement(static_cast<int>(i))) continue;
      CADRE_TRY(builder.set_replacement(static_cast<int>(i), tensor->view, *tensor));
    }
  }
  return {};
}

}  // namespace

const AdapterFormat kReplacementFormat = {"whole weights", claims, read};

}  // namespace cadre
