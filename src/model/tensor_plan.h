// What a checkpoint of a config would hold, without one: a family's builder asks a WeightLoader for its tensors, and a
// planner says yes to each, in the layout in which the family is published.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/families/family.h"

namespace cadre {

// Answers a WeightLoader that has no file. Not thread-safe.
class TensorPlanner {
 public:
  // `dtype`: of the matrices.
  TensorPlanner(const Family& family, const ModelConfig& config, DType dtype)
      : family_(family),
        quantisation_(config.quantisation),
        dtype_(dtype),
        own_head_(!config.tied_embeddings.value_or(family.ties_head)) {}

  // Whether the published layout has this tensor, where families accept it or another.
  bool has(const std::string& name) const;
  // Whether it is a vector that is stored as a matrix of one row.
  bool is_row(const std::string& name) const;
  // Whether it is stored in fewer bits.
  bool quantises(const std::string& name) const;
  // Puts `name` into the checkpoint with elements that are all zero, or the codes and factors that stand for it.
  Status make(Checkpoint& checkpoint, const std::string& name, Dims shape);

 private:
  Status add(Checkpoint& checkpoint, std::string name, DType dtype, std::vector<std::int64_t> shape);

  const Family& family_;
  const Quantisation quantisation_;
  const DType dtype_;
  const bool own_head_;
  std::shared_ptr<const void> zeros_;  // lent to every tensor
  std::uint64_t zeros_bytes_ = 0;
};

struct TensorPlan {
  // Made tensors, in the order in which the family asks for them. All elements are zero and take no memory.
  std::shared_ptr<Checkpoint> checkpoint;
  AdapterTargets targets;
  std::vector<std::pair<int, LayerSpec>> moe_layers;  // with the index of the model layer
  std::vector<StateSpec> states;
  std::vector<std::string> mixers;  // Mixer::kind of each block
};

// The tensors of the model that `config` describes. `called` stands for its folder in messages.
Result<TensorPlan> plan_tensors(const ModelConfig& config, const std::string& called);

// The type of the matrices by the config's `dtype` (or torch_dtype): bfloat16 where it does not say.
Result<DType> config_dtype(const Json& json);

}  // namespace cadre
