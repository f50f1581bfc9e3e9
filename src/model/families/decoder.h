// What the Llama-shaped families share: embedding, layers of attention and feed-forward, final norm, head.
#pragma once

#include <functional>

#include "model/blocks/attention.h"
#include "model/families/family.h"

namespace cadre {

struct DecoderLayout {
  // For layer i with its module prefix "model.layers.i".
  std::function<Result<std::unique_ptr<Mixer>>(int layer, const std::string& prefix)> attention, feed_forward;
  std::int64_t layers = 0;
  Builder::NormOptions norm;  // of every norm of the residual stream
  float residual_scale = 1;   // of what each mixer adds
  bool head_bias = false;
};

Status build_decoder(Builder& builder, Network& network, const DecoderLayout& layout);

// heads, kv_heads, head_dim, hidden and norm_eps of the config; module is prefix.self_attn.
Result<AttentionOptions> read_attention(const ModelConfig& config);

// sliding_window where use_sliding_window does not switch it off; 0: none.
Result<std::int64_t> read_sliding_window(const Json& json);

// The same of the Qwen families, where use_sliding_window has to switch it on.
Result<std::int64_t> read_switched_window(const Json& json);

// Whether layer i is a MoE layer: decoder_sparse_step and mlp_only_layers of the Qwen families.
Result<std::vector<bool>> read_sparse_layers(const Json& json, std::int64_t layers);

// Gated experts after a softmax over all of them, as most of these families have: activation, number of experts and
// top-k. The keys are the family's own names of the number of experts, which
// num_experts and num_local_experts may stand for, and of the intermediate size.
Result<LayerSpec> read_softmax_experts(const ModelConfig& config, std::string_view experts_key,
                                       std::string_view size_key);

// Refuses a config that leaves rope_theta out, for families whose default is not make_rope's.
Status require_rope_theta(const Json& json);

// The rotary embedding of the config, on the device.
Result<Rope> make_rope(Builder& builder, std::int64_t head_dim, double partial_otherwise = 1.0);

// Whether layer i attends within the window: layer_types, or what `otherwise` says.
Result<std::vector<bool>> read_sliding_layers(const Json& json, std::int64_t layers,
                                              const std::function<bool(std::int64_t)>& otherwise);

// What the files of Mixtral, MiniMax-M2 and Phi-3.5-MoE call a MoE layer: mlp where transformers 5 wrote them, which
// the tensor `sign` of layer 0's mlp shows, and block_sparse_moe as published. Adapters may say either.
std::string sparse_layer_name(Builder& builder, const std::string& sign);

// Layers that follow those of the model and predict further tokens are known and not used. The config says how many
// there are; one, where it does not.
Status ignore_draft_layers(Builder& builder, std::int64_t layers);

}  // namespace cadre
