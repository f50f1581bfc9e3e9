// Qwen3-Next (80B-A3B): three gated delta nets, then one attention layer, or as layer_types says. Attention has a gate
// on its output, a rotary embedding of a quarter of each head, and normalised queries and keys. Norms hold what is
// added to one, except the delta net's own. Softmax over all experts, then top-k, renormalised; a shared expert scaled
// by the sigmoid of a gate of its own; some layers may be dense. The draft layers (mtp) are not used.
#include "base/result.h"
#include "model/blocks/delta_net.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"
#include "model/families/qwen_hybrid.h"
#include "model/families/want.h"

namespace cadre {
namespace {

// Whether each layer is attention: layer_types, or every full_attention_interval-th.
Result<std::vector<bool>> read_attention_layers(const Json& json, std::int64_t layers) {
  std::vector<bool> full(static_cast<std::size_t>(layers));
  CADRE_ASSIGN(const std::int64_t every, json.get_int_or("full_attention_interval", 4, 1, kMaxLayers));
  if (!json.has("layer_types")) {
    for (std::int64_t i = 0; i < layers; ++i) full[static_cast<std::size_t>(i)] = (i + 1) % every == 0;
    return full;
  }
  CADRE_ASSIGN(const std::vector<std::string> types, json.get_string_list("layer_types"));
  if (types.size() != full.size()) {
    return error(Code::kInvalidFile, json.where("layer_types"), " has ", types.size(), " layers, want ", layers,
                 " by num_hidden_layers");
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    full[i] = types[i] == "full_attention" || types[i] == "attention";
    if (!full[i] && types[i] != "linear_attention") {
      return error(Code::kUnsupported, json.where("layer_types"), " has '", types[i],
                   "', want linear_attention or full_attention");
    }
  }
  return full;
}

Result<DeltaNetOptions> read_delta_net(const ModelConfig& c, bool grouped) {
  constexpr std::int64_t kMaxHeads = 1 << 20, kMaxHeadDim = 65536;  // products of three fit in 64 bits
  DeltaNetOptions o;
  o.hidden = c.hidden;
  o.grouped_projections = grouped;
  CADRE_ASSIGN(o.key_heads, c.json.get_int_or("linear_num_key_heads", 16, 1, kMaxHeads));
  CADRE_ASSIGN(o.key_dim, c.json.get_int_or("linear_key_head_dim", 128, 1, kMaxHeadDim));
  CADRE_ASSIGN(o.value_heads, c.json.get_int_or("linear_num_value_heads", 32, 1, kMaxHeads));
  CADRE_ASSIGN(o.value_dim, c.json.get_int_or("linear_value_head_dim", 128, 1, kMaxHeadDim));
  CADRE_ASSIGN(o.conv_width, c.json.get_int_or("linear_conv_kernel_dim", 4, 2, 1 << 16));
  CADRE_ASSIGN(o.norm_eps, config_epsilon(c.json, "rms_norm_eps", 1e-6));
  if (o.value_heads % o.key_heads != 0) {
    return error(Code::kInvalidFile, c.json.where("linear_num_value_heads"), " is ", o.value_heads,
                 ", want a multiple of linear_num_key_heads ", o.key_heads);
  }
  return o;
}

// A quarter of each head is rotated where the config does not say how much.
Result<Rope> read_quarter_rope(Builder& b, std::int64_t head_dim) { return make_rope(b, head_dim, 0.25); }

Result<AttentionOptions> read_gated_attention(const ModelConfig& c) {
  CADRE_ASSIGN(AttentionOptions o, read_attention(c));
  CADRE_ASSIGN(o.head_dim, c.json.get_int_or("head_dim", 256, 1, 65536));
  CADRE_ASSIGN(o.qkv_bias, c.json.get_bool_or("attention_bias", false));
  CADRE_ASSIGN(o.output_gate, c.json.get_bool_or("attn_output_gate", true));
  if (!o.output_gate) {
    return error(Code::kUnsupported, c.json.where("attn_output_gate"),
                 " is false, and this family's attention has a gate on its output; want true");
  }
  o.out_bias = o.qkv_bias;
  o.qk_norm = AttentionOptions::QkNorm::kPerHead;
  o.qk_norm_one_plus = true;
  return o;
}

Result<LayerSpec> read_experts(const ModelConfig& c, const QwenHybrid& family) {
  const Json& json = c.json;
  LayerSpec spec;
  CADRE_ASSIGN(const std::int64_t experts, json.get_int_or("num_experts", family.experts, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, json.get_int_or("num_experts_per_tok", family.top_k, 1, kMaxExperts));
  CADRE_ASSIGN(spec.intermediate, json.get_int_or("moe_intermediate_size", 512, 1, kMaxConfigSize));
  CADRE_ASSIGN(spec.shared_intermediate, json.get_int_or("shared_expert_intermediate_size", 512, 1, kMaxConfigSize));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", true));
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  if (spec.activation.kind != Activation::kSilu) {  // it is the delta net's as well
    return error(Code::kUnsupported, json.where("hidden_act"), ": gated delta nets are run with silu only");
  }
  if (family.all_sparse && !spec.routing.renormalize) {
    return error(Code::kUnsupported, json.where("norm_topk_prob"),
                 " is false, and this family always renormalises its weights; want true");
  }
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.shared_experts = 1;
  spec.routing.kind = Routing::kSoftmaxTopK;
  return spec;
}

}  // namespace

Status build_qwen_hybrid(Builder& b, Network& network, const QwenHybrid& family) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(const std::vector<bool> full, read_attention_layers(json, layers));
  CADRE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(json, layers));
  if (family.all_sparse && sparse != std::vector<bool>(sparse.size(), true)) {
    return error(Code::kUnsupported,
                 json.where(json.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step"),
                 " makes some layers dense, and this family has none");
  }
  CADRE_ASSIGN(DeltaNetOptions delta, read_delta_net(b.config, family.grouped_projections));
  CADRE_ASSIGN(AttentionOptions attention, read_gated_attention(b.config));
  CADRE_ASSIGN(const Rope rope, read_quarter_rope(b, attention.head_dim));
  attention.rope = &rope;
  CADRE_ASSIGN(const LayerSpec spec, read_experts(b.config, family));
  CADRE_ASSIGN(const std::int64_t dense_size, json.get_int_or("intermediate_size", 5632, 1, kMaxConfigSize));
  CADRE_ASSIGN(const bool slides, json.get_bool_or("use_sliding_window", false));
  if (slides) CADRE_TRY(want_int(json, "sliding_window", 0));
  // Axes of positions, which are all the same for text.
  b.ignored_fields.insert(b.ignored_fields.end(),
                          {"sliding_window", "max_window_layers", "*.mrope_section", "*.mrope_interleaved"});
  b.ignored_prefixes.emplace_back("mtp.");  // the draft layers for multi-token prediction

  return build_decoder(
      b, network,
      {.attention = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
         if (full[static_cast<std::size_t>(layer)]) {
           attention.module = prefix + ".self_attn";
           return make_attention(b, attention);
         }
         delta.module = prefix + ".linear_attn";
         return make_delta_net(b, delta);
       },
       .feed_forward = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
         const std::string mlp = prefix + ".mlp";
         MlpOptions dense{
             .module = mlp, .hidden = spec.hidden, .intermediate = dense_size, .activation = spec.activation};
         if (!sparse[static_cast<std::size_t>(layer)]) return make_mlp(b, dense);
         dense.module = mlp + ".shared_expert";
         dense.intermediate = spec.shared_intermediate;
         return make_moe(
             b, {.layer = layer,
                 .spec = spec,
                 .router = mlp + ".gate",
                 .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"},
                 .shared = dense,
                 .shared_gate = mlp + ".shared_expert_gate"});
       },
       .layers = layers,
       .norm = {.one_plus = true}});
}

Status build_qwen3_next(Builder& b, Network& network) {
  return build_qwen_hybrid(b, network, {.grouped_projections = true, .top_k = 10, .experts = 512});
}

}  // namespace cadre
