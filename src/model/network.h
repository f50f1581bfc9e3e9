// A model as a sequence of residual blocks: x += after(mixer(before(x))). Attention, MLPs, MoE and Mamba are mixers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/linear.h"

namespace cadre {

// State that one layer keeps for each sequence; the engine's pool makes room for it.
struct StateSpec {
  enum class Kind : std::uint8_t { kPagedKv, kLatentKv, kRecurrent };
  Kind kind = Kind::kPagedKv;
  // kPagedKv, on this rank
  std::int64_t kv_heads = 0, head_dim = 0;
  std::int64_t latent = 0;  // kLatentKv: elements of a token, whole on every rank
  // kRecurrent, on this rank: float32 [channels, width - 1] and [heads, ssm_head_dim, state]
  std::int64_t channels = 0, width = 0, heads = 0, ssm_head_dim = 0, state = 0;
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  // What it is, for people: "attention", "Mamba-2", "experts".
  virtual std::string_view kind() const = 0;
  // x [T, hidden], already normalised -> [T, hidden] from the arena, complete on every rank.
  virtual View forward(const Step& step, View x) const = 0;
};

// RMSNorm, or LayerNorm where there is a bias.
struct Norm {
  View weight, bias;  // [width]; an undefined weight is all ones
  float eps = 1e-6f;
  bool used = false;  // false: nothing happens
  void forward(const Step& step, View out, View x) const;
};

struct Block {
  Norm before;  // unused: the mixer sees the residual stream itself
  std::unique_ptr<Mixer> mixer;
  Norm after;         // of what the mixer gave
  float scale = 1;    // of the same, last (Granite's residual_multiplier)
  View stream_scale;  // [1] of the stream after the sum (Gemma's layer_scalar); undefined: none
};

struct Network {
  Embedding embedding;
  float embedding_scale = 1;
  std::vector<Block> blocks;
  Norm final_norm;
  Linear lm_head;
  float logit_scale = 1;
  float logit_softcap = 0;  // 0: none

  // logits float32 [L, vocab] for batch.rows.
  void forward(const Step& step, View logits) const;
};

}  // namespace cadre
