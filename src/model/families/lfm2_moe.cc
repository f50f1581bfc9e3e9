// LFM2-MoE (8B-A1B): short convolutions with some attention layers between them, each followed by a feed-forward layer,
// the first of which are dense. Sigmoid routing whose bias moves the choice and not the weights. Names are the family's
// own: operator_norm, ffn_norm, feed_forward.w1/w3/w2, q_layernorm, out_proj, and embedding_norm, which is the last.
#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/blocks/short_conv.h"
#include "model/families/decoder.h"

namespace cadre {
namespace {

Result<std::vector<bool>> read_attention_layers(const Json& json, std::int64_t layers) {
  CADRE_ASSIGN(const std::vector<std::string> types, json.get_string_list("layer_types"));
  if (static_cast<std::int64_t>(types.size()) != layers) {
    return error(Code::kInvalidFile, json.where("layer_types"), " has ", types.size(), " layers, want ", layers,
                 " by num_hidden_layers");
  }
  std::vector<bool> full;
  for (const std::string& type : types) {
    full.push_back(type == "full_attention" || type == "attention");
    if (!full.back() && type != "conv" && type != "linear_attention") {
      return error(Code::kUnsupported, json.where("layer_types"), " has '", type, "', want conv or full_attention");
    }
  }
  return full;
}

Result<LayerSpec> read_experts(const ModelConfig& c) {
  const Json& json = c.json;
  LayerSpec spec;
  CADRE_ASSIGN(const std::int64_t experts, json.get_int_or("num_experts", 32, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, json.get_int_or("num_experts_per_tok", 4, 1, kMaxExperts));
  CADRE_ASSIGN(spec.intermediate, json.get_int_or("moe_intermediate_size", 1792, 1, kMaxConfigSize));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", true));
  CADRE_ASSIGN(spec.routing.scale, config_float(json, "routed_scaling_factor", 1.0, -1e30, 1e30));
  CADRE_ASSIGN(spec.routing.selection_bias, json.get_bool_or("use_expert_bias", true));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.activation = {.kind = Activation::kSilu, .gated = true};
  spec.routing.kind = Routing::kSigmoidTopK;
  if (spec.routing.renormalize) spec.routing.sum_epsilon = 1e-6f;
  return spec;
}

}  // namespace

Status build_lfm2_moe(Builder& b, Network& network) {
  const ModelConfig& c = b.config;
  const Json& json = c.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(const std::vector<bool> full, read_attention_layers(json, layers));
  CADRE_ASSIGN(const std::int64_t dense_layers, json.get_int_or("num_dense_layers", 2, 0, kMaxLayers));
  CADRE_ASSIGN(const std::int64_t dense_size, json.get_int_or("intermediate_size", 7168, 1, kMaxConfigSize));
  CADRE_ASSIGN(const float eps, config_epsilon(json, "norm_eps", 1e-5));
  CADRE_ASSIGN(const LayerSpec spec, read_experts(c));

  AttentionOptions attention;
  ShortConvOptions conv{.hidden = c.hidden};
  CADRE_ASSIGN(attention, read_attention(c));
  CADRE_ASSIGN(conv.conv_width, json.get_int_or("conv_L_cache", 3, 2, 1 << 16));
  CADRE_ASSIGN(conv.bias, json.get_bool_or("conv_bias", false));
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(const Rope rope, make_rope(b, attention.head_dim));
  attention.rope = &rope;
  attention.norm_eps = eps;
  attention.qk_norm = AttentionOptions::QkNorm::kPerHead;
  attention.q_norm = "q_layernorm";
  attention.k_norm = "k_layernorm";
  attention.out = "out_proj";

  CADRE_TRY(b.embedding(network.embedding, "model.embed_tokens", c.vocab, c.hidden));
  for (int i = 0; i < layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i), ffn = prefix + ".feed_forward";
    Block mixer, feed_forward;
    CADRE_ASSIGN(mixer.before, b.norm(prefix + ".operator_norm", c.hidden, eps));
    if (full[static_cast<std::size_t>(i)]) {
      attention.module = prefix + ".self_attn";
      CADRE_ASSIGN(mixer.mixer, make_attention(b, attention));
    } else {
      conv.module = prefix + ".conv";
      CADRE_ASSIGN(mixer.mixer, make_short_conv(b, conv));
    }
    CADRE_ASSIGN(feed_forward.before, b.norm(prefix + ".ffn_norm", c.hidden, eps));
    if (i < dense_layers) {
      CADRE_ASSIGN(feed_forward.mixer, make_mlp(b, {.module = ffn,
                                                    .hidden = c.hidden,
                                                    .intermediate = dense_size,
                                                    .activation = spec.activation,
                                                    .gate = "w1",
                                                    .up = "w3",
                                                    .down = "w2"}));
    } else {
      CADRE_ASSIGN(feed_forward.mixer,
                   make_moe(b, {.layer = i,
                                .spec = spec,
                                .router = ffn + ".gate",
                                .selection_bias = ffn + ".expert_bias",
                                .experts = {.module = ffn + ".experts", .gate = "w1", .up = "w3", .down = "w2"}}));
    }
    network.blocks.push_back(std::move(mixer));
    network.blocks.push_back(std::move(feed_forward));
  }
  CADRE_ASSIGN(network.final_norm, b.norm("model.embedding_norm", c.hidden, eps));
  b.targets.layers = static_cast<int>(layers);
  return b.lm_head(network.lm_head, network.embedding);
}

}  // namespace cadre
