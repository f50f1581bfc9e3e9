// What the kernel in experts.cc can run, and nothing else. A field that is not named has MoeRecord's default: plain
// layouts, one rank, no adapters, no clamp, no biases, and any routing, since ids and weights come ready made.
#pragma once

#include "moe/record.h"

namespace scalar {

// Bytes of the scratch that the largest call takes: one row of activations for each of its rows.
inline std::int64_t workspace(const cadre::LayerSpec& spec, const cadre::Deployment& deployment) {
  return std::int64_t{deployment.max_tokens} * spec.intermediate * static_cast<std::int64_t>(sizeof(float));
}

inline constexpr cadre::MoeRecord kRecord = {
    .weight_types = cadre::bits(cadre::WeightType::kBF16),
    .activation_types = cadre::bits(cadre::WeightType::kBF16),
    .gated_activations = cadre::bits(cadre::Activation::kSilu),
    .max_tensor_parallel = 1,
    .batch_invariant = true,
    .workspace = &workspace,
};

}  // namespace scalar
