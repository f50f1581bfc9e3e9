#pragma once

#include "moe/record.h"

namespace cadre {

inline constexpr MoeRecord kCpuReferenceRecord = {
    .devices = bits(DeviceKind::kCpu),
    .activations_on = bits(DeviceKind::kCpu),
    .weight_types = bits(WeightType::kBF16, WeightType::kF16, WeightType::kF32),
    .activation_types = bits(WeightType::kBF16, WeightType::kF16, WeightType::kF32),
    .gated_activations =
        bits(Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu2, Activation::kSwigluOai),
    .plain_activations = bits(Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu2),
    .clamp = true,
    .activation_parameters = true,
    .expert_bias = true,
    .router_weight_on_input = true,
    .adapters = true,
    .max_rank = kNoLimit,
    .adapter_layouts = kPerExpert | kSharedGateUpA | kSharedOuter,
    .expert_parallel = bits(ExpertParallelKind::kNone, ExpertParallelKind::kAllGatherReduceScatter),
    .batch_invariant = true,
};

}  // namespace cadre
