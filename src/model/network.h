// A model as a sequence of pre-norm residual blocks: x += mixer(norm(x)). Attention, MLPs, MoE and Mamba are mixers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/linear.h"

namespace cadre {

// State that one layer keeps for each sequence; the engine's pool makes room for it.
struct StateSpec {
  enum class Kind : std::uint8_t { kPagedKv, kRecurrent };
  Kind kind = Kind::kPagedKv;
  // kPagedKv, on this rank
  std::int64_t kv_heads = 0, head_dim = 0;
  // kRecurrent, on this rank: float32 [channels, width - 1] and [heads, ssm_head_dim, state]
  std::int64_t channels = 0, width = 0, heads = 0, ssm_head_dim = 0, state = 0;
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  // x [T, hidden], already normalised -> [T, hidden] from the arena, complete on every rank.
  virtual View forward(const Step& step, View x) const = 0;
};

struct Block {
  View norm;  // [hidden]
  std::unique_ptr<Mixer> mixer;
};

struct Network {
  Embedding embedding;
  std::vector<Block> blocks;
  View final_norm;
  Linear lm_head;
  float norm_eps = 1e-6f;

  // logits float32 [L, vocab] for batch.rows.
  void forward(const Step& step, View logits) const;
};

}  // namespace cadre
