// Mamba-2 (arXiv:2405.21060): in_proj -> causal convolution -> selective state-space scan -> gated norm -> out_proj.
#pragma once

#include "model/builder.h"

namespace cadre {

struct Mamba2Options {
  std::string module;  // "backbone.layers.0.mixer"
  std::int64_t hidden = 0;
  std::int64_t heads = 0, head_dim = 0, groups = 0, state = 0, conv_width = 0;
  bool proj_bias = false, conv_bias = true;
  float norm_eps = 1e-5f;
  // Parts of the gated norm; 0: one for each group. Where they are not the groups, every rank computes the whole layer.
  std::int64_t norm_groups = 0;
  float dt_min = 0, dt_max = 0;  // time_step_limit
};

Result<std::unique_ptr<Mixer>> make_mamba2(Builder& builder, const Mamba2Options& options);

}  // namespace cadre
