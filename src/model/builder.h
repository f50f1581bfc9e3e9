// Builder: what a family file builds a Network with. It loads weights under their names, divides them over ranks,
// registers what adapters may touch, and collects what the MoE layers ask of the gate.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lora/canonical.h"
#include "model/config.h"
#include "model/expert_weights.h"
#include "model/network.h"

namespace cadre {

// This process's place among the ranks. Attention and dense layers are split over all of them; experts are split as
// well, or spread whole with `expert_parallel`, as vLLM's flag of that name does.
struct Ranks {
  int rank = 0, size = 1;
  bool expert_parallel = false;
  ExpertShard expert_shard() const {
    return expert_parallel ? ExpertShard{0, 1, rank, size} : ExpertShard{rank, size, 0, 1};
  }
  // This rank's equal part of n.
  std::pair<std::int64_t, std::int64_t> part(std::int64_t n) const { return {n * rank / size, n * (rank + 1) / size}; }
};

class MoeMixer;

// Time spent in the kernels of a MoE layer, and how often they ran.
struct MoeTime {
  double seconds = 0;
  std::int64_t calls = 0;
};

// One MoE layer before its backend is chosen.
struct MoeLayer {
  int layer = 0;  // index of the model layer
  LayerSpec spec;
  std::unique_ptr<ExpertWeights> weights;
  MoeMixer* mixer = nullptr;  // receives the Experts
  int target = 0;             // index into AdapterTargets::experts
};

// What adapters bind to, by index into AdapterTargets::dense.
struct DenseSite {
  Linear* linear = nullptr;
  Embedding* embedding = nullptr;
};

struct LinearOptions {
  bool bias = false;
  Split split = Split::kNone;
  Ranges ranges;  // of the divided dimension on this rank; empty: an equal part
};

class Builder {
 public:
  Builder(const ModelConfig& model_config, WeightLoader& weight_loader, Ranks all_ranks)
      : config(model_config), loader(weight_loader), ranks(all_ranks) {}

  const ModelConfig& config;
  WeightLoader& loader;
  const Ranks ranks;

  AdapterTargets targets;
  std::vector<DenseSite> sites;
  std::vector<MoeLayer> moe_layers;
  std::vector<StateSpec> states;
  bool rope_by_length = false;                // some rotary embedding depends on how long its sequence is
  std::vector<std::string> ignored_prefixes;  // tensors that the family knows and does not use
  std::vector<std::string> ignored_fields;    // of the config that change nothing here, see refuse_unknown_fields

  // `linear` must stay where it is for the life of the model. module: "model.layers.0.self_attn.q_proj".
  Status linear(Linear& linear, const std::string& module, std::int64_t in, std::int64_t out,
                const LinearOptions& options = {});
  Status embedding(Embedding& embedding, const std::string& module, std::int64_t vocab, std::int64_t hidden);
  // A vector of the file with `one` added to each element, in float32.
  Result<View> one_plus_vector(const std::string& name, std::int64_t size);
  // lm_head.weight, or the embedding's table where the config ties them and the file has no head of its own.
  Status lm_head(Linear& linear, const Embedding& embedding, bool bias = false);
  // A norm over `size` elements with module.weight, and module.bias where it is a LayerNorm. `one_plus`: the file holds
  // what is added to one (Qwen3-Next, Gemma 2 and 3).
  struct NormOptions {
    bool layer_norm = false, one_plus = false;
  };
  Result<Norm> norm(const std::string& module, std::int64_t size, float eps, const NormOptions& options);
  Result<Norm> norm(const std::string& module, std::int64_t size, float eps) { return norm(module, size, eps, {}); }
  // A vector, e.g. a norm's weight; `part`: only this rank's elements.
  Result<View> vector(const std::string& name, std::int64_t size, bool part = false);
  // n divided by the number of ranks; refuses a remainder, naming what it is of.
  Result<std::int64_t> per_rank(std::int64_t n, const char* what) const;

  Result<int> add_state(const StateSpec& spec);
  // Registers a MoE layer. Names are of the file; aliases of its module for adapters are the family's to add.
  Status moe_layer(MoeMixer& mixer, int layer, const LayerSpec& spec, const ExpertNames& names);
};

}  // namespace cadre
