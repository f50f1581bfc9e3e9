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
  // RMSNorm of queries and keys: over each head (Qwen3), over all heads together (OLMoE), or over each head without
  // weights (Llama 4).
  enum class QkNorm : std::uint8_t { kNone, kPerHead, kWhole, kPerHeadPlain } qk_norm = QkNorm::kNone;
  bool qk_norm_after_rope = false;  // HunYuan, Llama 4
  bool qk_norm_one_plus = false;    // the file holds what is added to one (Qwen3-Next)
  bool value_norm = false;          // of values too, without weights (Gemma 4)
  float norm_eps = 1e-6f;
  float clip_qkv = 0;          // OLMoE: clamp of q, k and v; 0: none
  std::int64_t window = 0;     // sliding window; 0: none
  std::int64_t chunk = 0;      // Llama 4: keys of the same chunk only; 0: none
  const Rope* rope = nullptr;  // null: no rotary embedding
  float scale = 0;             // of the scores; 0: 1/sqrt(head_dim)
  float softcap = 0;           // of the scores; 0: none
  bool sinks = false;          // gpt-oss: module.sinks, one for each head
  // Qwen3-Next: q_proj gives for each head a query and a gate whose sigmoid the head's output is multiplied by.
  bool output_gate = false;
  bool keys_are_values = false;  // Gemma 4: no v_proj, values are the keys before their norm and rotation
  // Llama 4: queries of layers without rotary embedding grow with the position, see Ops::scale_by_position.
  float temperature_scale = 0, temperature_floor = 0;
  // Names within the module.
  std::string q_norm = "q_norm", k_norm = "k_norm", out = "o_proj";
};

Result<std::unique_ptr<Mixer>> make_attention(Builder& builder, const AttentionOptions& options);

// The device copies of a RopeConfig's tables.
Result<Rope> upload_rope(Builder& builder, const RopeConfig& config);

}  // namespace cadre
