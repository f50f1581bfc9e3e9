// What the Granite-MoE families share: multipliers of embedding, residual, scores and logits; experts after the softmax
// of the top-k logits; shared experts whose first projection holds gate and up.
//
// Published files keep experts as block_sparse_moe.input_linear [E, 2I, H], output_linear [E, H, I] and router.layer;
// transformers 5 and the adapters it writes say experts.gate_up_proj, experts.down_proj and router.
#pragma once

#include "model/blocks/attention.h"
#include "model/families/decoder.h"

namespace cadre {

struct Granite {
  std::int64_t layers = 0;
  AttentionOptions attention;  // its module and rope are the family's to set
  LayerSpec spec;              // no experts: the shared ones are all there is
  float residual_scale = 1;
};

struct GraniteKind {
  bool shared = false;         // shared_intermediate_size counts
  bool dense_allowed = false;  // num_local_experts may be 0
};

// Also sets what the config says of the network's own scales.
Result<Granite> read_granite(const ModelConfig& config, Network& network, const GraniteKind& kind);

Result<std::unique_ptr<Mixer>> make_granite_feed_forward(Builder& builder, const Granite& granite, int layer,
                                                         const std::string& prefix);

}  // namespace cadre
