// Gemma 4 (26B-A4B, and the dense 31B), the text part. Sliding and full layers have their own rotation, head size and
// number of key-value heads; on full layers values may be the keys. Scores are not scaled, queries and keys carry norms
// with weights and values one without. Every mixer's output is normalised before the sum, each layer ends with a factor
// of the whole stream, embeddings are multiplied by sqrt(hidden), and experts lie beside a dense MLP, see
// gemma_feed_forward.h. The small models (E2B, E4B), with inputs for each layer and shared keys, are refused.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/result.h"
#include "model/blocks/gemma_feed_forward.h"
#include "model/families/decoder.h"

namespace cadre {
namespace {

// What all layers of one type have in common.
struct LayerType {
  const char* name;
  AttentionOptions attention;
  Rope rope;
};

// What version 5 writes of layers that differ: {"5": {"head_dim": 512}}. All layers of a type must agree.
Status read_overrides(const Json& json, const std::vector<bool>& sliding, LayerType& type, bool slides) {
  CADRE_ASSIGN(const Json all, json.get_object("per_layer_config"));
  std::map<std::int64_t, Json> by_layer;  // the keys may be written with leading zeros
  for (const auto& [layer, fields] : all.members()) {
    std::int64_t index = -1;
    const auto [end, failure] = std::from_chars(layer.data(), layer.data() + layer.size(), index);
    if (failure != std::errc() || end != layer.data() + layer.size() || !fields.is_object() ||
        !by_layer.emplace(index, fields).second) {
      return error(Code::kInvalidFile, json.where("per_layer_config"), " has '", layer, "' with ", describe(fields),
                   ", want each layer's number once, with an object");
    }
    for (const auto& [key, value] : fields.members()) {
      if (key != "head_dim" && key != "num_key_value_heads") {
        return error(Code::kUnsupported, json.where("per_layer_config"), ": layer ", layer, " has '", key,
                     "', want head_dim or num_key_value_heads");
      }
    }
  }
  AttentionOptions& o = type.attention;
  const std::int64_t head_dim = o.head_dim, kv_heads = o.kv_heads;
  bool first = true;
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (sliding[i] != slides) continue;
    const auto found = by_layer.find(static_cast<std::int64_t>(i));
    const Json own = found != by_layer.end() ? found->second : Json::object({});
    CADRE_ASSIGN(const std::int64_t dim, own.get_int_or("head_dim", head_dim, 1, 65536));
    CADRE_ASSIGN(const std::int64_t heads, own.get_int_or("num_key_value_heads", kv_heads, 1, kMaxConfigSize));
    if (!first && (dim != o.head_dim || heads != o.kv_heads)) {
      return error(Code::kUnsupported, json.where("per_layer_config"), ": layer ", i, " differs from other layers of ",
                   type.name, ", want one head_dim and num_key_value_heads for each type of layer");
    }
    first = false;
    o.head_dim = dim;
    o.kv_heads = heads;
  }
  return {};
}

// Head size and key-value heads of full layers as files before per_layer_config have them.
Status read_global(const Json& json, AttentionOptions& o) {
  CADRE_ASSIGN(o.head_dim, json.get_int_or("global_head_dim", 512, 1, 65536));
  if (o.keys_are_values) {
    CADRE_ASSIGN(o.kv_heads, json.get_int_or("num_global_key_value_heads", o.kv_heads, 1, kMaxConfigSize));
  }
  return {};
}

Result<Rope> read_rotation(Builder& b, const LayerType& type) {
  const Json& json = b.config.json;
  const std::int64_t dim = type.attention.head_dim;
  if (!json.has("rope_parameters")) {  // the defaults of the class
    const bool full = std::string_view(type.name) == "full_attention";
    Json fields =
        full ? Json::object({{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1000000.0}})
             : Json::object({{"rope_theta", 10000.0}});
    const Json defaults = Json::object({{"rope_parameters", std::move(fields)}});
    CADRE_ASSIGN(const RopeConfig config, read_rope(defaults, dim, b.config.max_context));
    return upload_rope(b, config);
  }
  CADRE_ASSIGN(const RopeConfig config, read_layer_rope(json, type.name, dim, b.config.max_context));
  if (config.rope.dim != dim) {
    return error(Code::kUnsupported, json.where("rope_parameters"), ": ", type.name, " rotates ", config.rope.dim,
                 " of ", dim, " dimensions; want no partial_rotary_factor, or rope_type proportional");
  }
  return upload_rope(b, config);
}

Status read_type(Builder& b, const std::vector<bool>& sliding, bool slides, LayerType& type) {
  const Json& json = b.config.json;
  AttentionOptions& o = type.attention;
  const Json* overrides = json.find("per_layer_config");
  if (overrides == nullptr) {
    if (!slides) CADRE_TRY(read_global(json, o));
  } else if (!overrides->is_null()) {
    CADRE_TRY(read_overrides(json, sliding, type, slides));
  }
  if (o.kv_heads > o.heads || o.heads % o.kv_heads != 0) {
    return error(Code::kInvalidFile, json.where("num_attention_heads"), " is ", o.heads, ", want a multiple of the ",
                 o.kv_heads, " key-value heads of ", type.name);
  }
  CADRE_ASSIGN(type.rope, read_rotation(b, type));
  o.rope = &type.rope;
  return {};
}

Status refuse_unknown(const Json& json) {
  CADRE_ASSIGN(const std::int64_t inputs, json.get_int_or("hidden_size_per_layer_input", 256, 0, kMaxConfigSize));
  if (inputs != 0) {
    return error(Code::kUnsupported, json.where("hidden_size_per_layer_input"), " is ", inputs,
                 ": inputs for each layer (E2B, E4B) are not known, want 0");
  }
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("num_kv_shared_layers", 0, 0, kMaxLayers));
  if (shared != 0) {
    return error(Code::kUnsupported, json.where("num_kv_shared_layers"), " is ", shared,
                 ": layers that share keys and values are not known, want 0");
  }
  // "vision" concerns tokens of images only.
  CADRE_ASSIGN(const std::string both, json.get_string_or("use_bidirectional_attention", "vision"));
  if (both != "vision") {
    return error(Code::kUnsupported, json.where("use_bidirectional_attention"), " is '", both,
                 "': text that sees what follows it is not known, want null or vision");
  }
  return {};
}

Result<LayerSpec> read_experts(const ModelConfig& c, Activation activation) {
  const Json& json = c.json;
  LayerSpec spec;
  CADRE_ASSIGN(const std::int64_t experts, config_int(json, {"num_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"top_k_experts"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"moe_intermediate_size"}));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.activation = {.kind = activation, .gated = true};
  spec.routing = {.kind = Routing::kSoftmaxTopK, .renormalize = true, .per_expert_scale = true};
  return spec;
}

// sqrt(hidden) as a number of the table's type, which it is rounded to before it multiplies.
float embedding_scale(const Embedding& embedding, std::int64_t hidden) {
  const float scale = std::sqrt(static_cast<float>(hidden));
  const DType type = embedding.table().dtype;
  if (type == DType::kF32) return scale;
  const int bits = type == DType::kBF16 ? 8 : 11;  // of the significand
  int exponent = 0;
  const float fraction = std::frexp(scale, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

}  // namespace

Status build_gemma4(Builder& b, Network& network) {
  const ModelConfig& c = b.config;
  const Json& json = c.json;
  CADRE_TRY(refuse_unknown(json));
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(std::vector<bool> slides,
               read_sliding_layers(json, layers, [](std::int64_t i) { return (i + 1) % 6 != 0; }));
  slides.back() = false;  // whatever the config says, as transformers does
  CADRE_ASSIGN(const float eps, config_epsilon(json, "rms_norm_eps", 1e-6));
  CADRE_TRY(json.get_int("num_key_value_heads").status());  // the defaults of other families are others
  CADRE_TRY(json.get_int("head_dim").status());

  LayerType sliding{.name = "sliding_attention", .attention = {}, .rope = {}};
  LayerType full{.name = "full_attention", .attention = {}, .rope = {}};
  CADRE_ASSIGN(AttentionOptions attention, read_attention(c));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  attention.out_bias = attention.qkv_bias;
  attention.qk_norm = AttentionOptions::QkNorm::kPerHead;
  attention.value_norm = true;
  attention.norm_eps = eps;
  attention.scale = 1;
  sliding.attention = full.attention = attention;
  CADRE_ASSIGN(sliding.attention.window, json.get_int_or("sliding_window", 512, 1, kMaxConfigSize));
  CADRE_ASSIGN(full.attention.keys_are_values, json.get_bool_or("attention_k_eq_v", false));
  // Of types that the model does not have, the config need not be right.
  if (std::find(slides.begin(), slides.end(), true) != slides.end()) CADRE_TRY(read_type(b, slides, true, sliding));
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) {
    b.ignored_fields.insert(b.ignored_fields.end(), {"sliding_window", "rope_parameters.sliding_attention*"});
  }
  CADRE_TRY(read_type(b, slides, false, full));
  // Of full layers' own keys where values are not the keys, of layers that share keys, and of inputs for each layer.
  b.ignored_fields.insert(b.ignored_fields.end(), {"num_global_key_value_heads", "use_double_wide_mlp",
                                                   "vocab_size_per_layer_input", "global_head_dim"});

  GemmaFeedForwardOptions ffn{.prefix = {}, .dense = {.hidden = c.hidden}, .moe = {}, .norm_eps = eps};
  CADRE_ASSIGN(ffn.dense.activation.kind, config_activation(json, "hidden_activation", "gelu_pytorch_tanh"));
  CADRE_ASSIGN(ffn.dense.intermediate, config_int(json, {"intermediate_size"}));
  CADRE_ASSIGN(const bool has_experts, json.get_bool_or("enable_moe_block", false));
  if (has_experts) {
    ffn.moe.emplace();
    CADRE_ASSIGN(ffn.moe->spec, read_experts(c, ffn.dense.activation.kind));
    ffn.moe->experts = {.module = {}, .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
    ffn.moe->norm_eps = eps;
  } else {
    b.ignored_fields.insert(b.ignored_fields.end(), {"num_experts", "top_k_experts", "moe_intermediate_size"});
  }

  CADRE_TRY(b.embedding(network.embedding, "model.embed_tokens", c.vocab, c.hidden));
  network.embedding_scale = embedding_scale(network.embedding, c.hidden);
  for (int i = 0; i < layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    Block mixer, feed_forward;
    AttentionOptions o = slides[static_cast<std::size_t>(i)] ? sliding.attention : full.attention;
    o.module = prefix + ".self_attn";
    CADRE_ASSIGN(mixer.before, b.norm(prefix + ".input_layernorm", c.hidden, eps));
    CADRE_ASSIGN(mixer.mixer, make_attention(b, o));
    CADRE_ASSIGN(mixer.after, b.norm(prefix + ".post_attention_layernorm", c.hidden, eps));
    ffn.prefix = prefix;
    ffn.dense.module = prefix + ".mlp";
    if (ffn.moe) {
      ffn.moe->layer = i;
      ffn.moe->router = prefix + ".router.proj";
      ffn.moe->router_scale = prefix + ".router.scale";
      ffn.moe->per_expert_scale = prefix + ".router.per_expert_scale";
      ffn.moe->experts_norm = prefix + ".pre_feedforward_layernorm_2";
      ffn.moe->experts.module = prefix + ".experts";
    }
    CADRE_ASSIGN(feed_forward.mixer, make_gemma_feed_forward(b, ffn));
    CADRE_ASSIGN(feed_forward.after, b.norm(prefix + ".post_feedforward_layernorm", c.hidden, eps));
    if (b.loader.has(prefix + ".layer_scalar")) {
      CADRE_ASSIGN(feed_forward.stream_scale, b.vector(prefix + ".layer_scalar", 1));
    }
    network.blocks.push_back(std::move(mixer));
    network.blocks.push_back(std::move(feed_forward));
  }
  CADRE_ASSIGN(network.final_norm, b.norm("model.norm", c.hidden, eps));
  if (json.has("final_logit_softcapping")) {
    CADRE_ASSIGN(network.logit_softcap, config_float(json, "final_logit_softcapping", 0, 1e-6, 1e6));
  }
  b.targets.layers = static_cast<int>(layers);
  return b.lm_head(network.lm_head, network.embedding);
}

}  // namespace cadre
