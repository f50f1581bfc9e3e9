// Gated DeltaNet (arXiv:2412.06464): projections -> causal convolution of queries, keys and values -> gated delta rule
// -> RMSNorm within each head, times silu of a gate -> out_proj.
#pragma once

#include "model/builder.h"

namespace cadre {

struct DeltaNetOptions {
  std::string module;  // "model.layers.0.linear_attn"
  std::int64_t hidden = 0;
  std::int64_t key_heads = 0, key_dim = 0;      // of queries and keys
  std::int64_t value_heads = 0, value_dim = 0;  // a multiple of key_heads
  std::int64_t conv_width = 0;
  float norm_eps = 1e-6f;
  // Qwen3-Next: in_proj_qkvz and in_proj_ba give for each key head its query, its key, and the values, gates, b and a
  // of its value heads. Otherwise in_proj_qkv, in_proj_z, in_proj_b and in_proj_a give each for all heads.
  bool grouped_projections = false;
};

Result<std::unique_ptr<Mixer>> make_delta_net(Builder& builder, const DeltaNetOptions& options);

}  // namespace cadre
