// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434). The cache holds one latent vector and one rotated key
// for each token, the same for all heads; kv_b_proj, which would make keys and values of them, is absorbed: its key
// part is applied to the queries, its value part to the result, so nothing is expanded for a cached token. Heads are
// divided over ranks; every rank keeps the whole latent cache.
#pragma once

#include "model/builder.h"

namespace cadre {

struct MlaOptions {
  std::string module;  // "model.layers.0.self_attn"
  std::int64_t hidden = 0, heads = 0;
  std::int64_t q_rank = 0;                                 // of the low-rank queries q_a_proj, q_b_proj; 0: one q_proj
  std::int64_t kv_rank = 0;                                // of the latent vector
  std::int64_t nope_dim = 0, rope_dim = 0, value_dim = 0;  // of a head: query and key without and with rotation, value
  bool bias = false;                                       // of q_a_proj, kv_a_proj_with_mqa and o_proj
  float norm_eps = 1e-6f;                                  // of the norms of both latents
  Rope rope;
  float scale = 0;  // of the scores
};

Result<std::unique_ptr<Mixer>> make_mla(Builder& builder, const MlaOptions& options);

}  // namespace cadre
