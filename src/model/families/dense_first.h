// What DeepSeek, GLM-4.5, dots.llm1 and ERNIE 4.5 share: dense first layers, then routed experts beside shared ones
// that see the same input and are summed with them.
#pragma once

#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"
#include "model/families/want.h"

namespace cadre {

struct DenseFirst {
  LayerSpec spec;               // of the MoE layers; shared_intermediate 0: no shared experts
  std::vector<bool> sparse;     // by layer
  std::int64_t dense_size = 0;  // intermediate size of the other layers
  std::string selection_bias;   // within prefix.mlp, "gate.e_score_correction_bias"; empty: none
  std::string shared = "shared_experts";
  bool bias = false;  // of dense layers and shared experts
};

// Layer i's feed-forward, of modules under `mlp` ("model.layers.i.mlp").
Result<std::unique_ptr<Mixer>> make_dense_first(Builder& builder, const DenseFirst& options, int layer,
                                                const std::string& mlp);

// DeepSeek-V3's routing as the configs of GLM and dots state it: sigmoid with a selection bias, groups, scale.
// n_routed_experts, num_experts_per_tok, moe_intermediate_size, n_shared_experts, n_group, topk_group, norm_topk_prob,
// routed_scaling_factor, first_k_dense_replace, intermediate_size.
Result<DenseFirst> read_sigmoid_dense_first(const ModelConfig& config, std::int64_t layers, bool renormalize_default,
                                            std::int64_t shared_default, std::int64_t dense_default);

}  // namespace cadre
