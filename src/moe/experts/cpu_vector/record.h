#pragma once

#include "moe/record.h"

namespace cadre {

// Bytes of scratch that the largest call takes from the arena.
std::int64_t cpu_vector_workspace(const LayerSpec& spec, const Deployment& deployment);

inline constexpr MoeRecord kCpuVectorRecord = {
    .devices = bits(DeviceKind::kCpu),
    .activations_on = bits(DeviceKind::kCpu),
    .weight_types = bits(WeightType::kBF16),
    .activation_types = bits(WeightType::kBF16),
    .gated_activations = bits(Activation::kSilu, Activation::kGeluTanh),
    .plain_activations = bits(Activation::kSilu, Activation::kRelu2),
    .width_multiple = 32,
    .intermediate_multiple = 32,
    .pads_intermediate = true,
    .adapters = true,
    .max_rank = 512,
    .adapter_layouts = kPerExpert | kSharedGateUpA | kSharedOuter,
    .expert_parallel = bits(ExpertParallelKind::kNone, ExpertParallelKind::kAllGatherReduceScatter),
    .batch_invariant = true,
    .workspace = &cpu_vector_workspace,
};

}  // namespace cadre
