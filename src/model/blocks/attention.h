// Grouped-query attention over a paged key-value cache.
#pragma once

#include <optional>

#include "model/builder.h"
#include "model/rope_config.h"

namespace cadre {

struct AttentionOptions {
  std::string module;  // "model.layers.0.self_attn"
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, out_bias = false;
  // RMSNorm of queries and keys: over each head (Qwen3) or over all heads together (OLMoE). Weights are
  // module.q_norm.weight and module.k_norm.weight.
  enum class QkNorm : std::uint8_t { kNone, kPerHead, kWhole } qk_norm = QkNorm::kNone;
  float norm_eps = 1e-6f;
  float clip_qkv = 0;          // OLMoE: clamp of q, k and v; 0: none
  std::int64_t window = 0;     // sliding window; 0: none
  const Rope* rope = nullptr;  // null: no rotary embedding
};

Result<std::unique_ptr<Mixer>> make_attention(Builder& builder, const AttentionOptions& options);

// The device copies of a RopeConfig's tables.
Result<Rope> upload_rope(Builder& builder, const RopeConfig& config);

}  // namespace cadre
