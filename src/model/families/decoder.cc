#include "model/families/decoder.h"

#include "base/result.h"

namespace cadre {

Status build_decoder(Builder& b, Network& network, const DecoderLayout& layout) {
  const ModelConfig& c = b.config;
  CADRE_ASSIGN(const float eps, config_epsilon(c.json, "rms_norm_eps", 1e-6));
  CADRE_TRY(b.embedding(network.embedding, "model.embed_tokens", c.vocab, c.hidden));
  for (int i = 0; i < layout.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    Block attention, feed_forward;
    attention.scale = feed_forward.scale = layout.residual_scale;
    CADRE_ASSIGN(attention.before, b.norm(prefix + ".input_layernorm", c.hidden, eps, layout.norm));
    CADRE_ASSIGN(attention.mixer, layout.attention(i, prefix));
    CADRE_ASSIGN(feed_forward.before, b.norm(prefix + ".post_attention_layernorm", c.hidden, eps, layout.norm));
    CADRE_ASSIGN(feed_forward.mixer, layout.feed_forward(i, prefix));
    network.blocks.push_back(std::move(attention));
    network.blocks.push_back(std::move(feed_forward));
  }
  CADRE_ASSIGN(network.final_norm, b.norm("model.norm", c.hidden, eps, layout.norm));
  b.targets.layers = static_cast<int>(layout.layers);
  return b.lm_head(network.lm_head, network.embedding, layout.head_bias);
}

Result<AttentionOptions> read_attention(const ModelConfig& c) {
  AttentionOptions o;
  o.hidden = c.hidden;
  CADRE_ASSIGN(o.heads, config_int(c.json, {"num_attention_heads"}));
  CADRE_ASSIGN(o.kv_heads, c.json.get_int_or("num_key_value_heads", o.heads, 1, o.heads));
  if (o.heads % o.kv_heads != 0) {
    return error(Code::kInvalidFile, c.json.where("num_attention_heads"), " is ", o.heads,
                 ", want a multiple of num_key_value_heads ", o.kv_heads);
  }
  CADRE_ASSIGN(o.head_dim, c.json.get_int_or("head_dim", o.hidden / o.heads, 1, 65536));
  if (o.head_dim < 1 || o.head_dim > 65536) {  // derived: get_int_or does not check its default
    return error(Code::kInvalidFile, c.json.where("num_attention_heads"), " is ", o.heads, " for hidden_size ",
                 o.hidden, ", which gives heads of ", o.head_dim, " dimensions; want 1 to 65536, or head_dim");
  }
  CADRE_ASSIGN(o.norm_eps, config_epsilon(c.json, "rms_norm_eps", 1e-6));
  return o;
}

Result<std::int64_t> read_sliding_window(const Json& json) {
  CADRE_ASSIGN(const std::int64_t window, json.get_int_or("sliding_window", 0, 0, kMaxConfigSize));
  CADRE_ASSIGN(const bool use, json.get_bool_or("use_sliding_window", true));
  return use ? window : 0;
}

Result<std::int64_t> read_switched_window(const Json& json) {
  const std::int64_t absent = json.find("sliding_window") == nullptr ? 4096 : 0;
  CADRE_ASSIGN(const std::int64_t window, json.get_int_or("sliding_window", absent, 0, kMaxConfigSize));
  CADRE_ASSIGN(const bool use, json.get_bool_or("use_sliding_window", false));
  return use ? window : 0;
}

Result<std::vector<bool>> read_sparse_layers(const Json& json, std::int64_t layers) {
  CADRE_ASSIGN(const std::int64_t every, json.get_int_or("decoder_sparse_step", 1, 1, 1 << 20));
  std::vector<bool> sparse(static_cast<std::size_t>(layers));
  for (std::int64_t i = 0; i < layers; ++i) sparse[static_cast<std::size_t>(i)] = (i + 1) % every == 0;
  if (json.has("mlp_only_layers")) {
    CADRE_ASSIGN(const std::vector<std::int64_t> dense, json.get_int_list("mlp_only_layers"));
    for (const std::int64_t i : dense) {
      if (i >= 0 && i < layers) sparse[static_cast<std::size_t>(i)] = false;
    }
  }
  return sparse;
}

Result<LayerSpec> read_softmax_experts(const ModelConfig& c, std::string_view experts_key, std::string_view size_key) {
  LayerSpec spec;
  CADRE_ASSIGN(spec.activation.kind, config_activation(c.json, "hidden_act", "silu"));
  CADRE_ASSIGN(const std::int64_t experts,
               config_int(c.json, {experts_key, "num_experts", "num_local_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(c.json, {"num_experts_per_tok"}));
  CADRE_ASSIGN(spec.intermediate, config_int(c.json, {size_key}));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.routing.kind = Routing::kSoftmaxTopK;
  return spec;
}

Status require_rope_theta(const Json& json) {
  const Json* fields = json.has("rope_parameters") ? json.find("rope_parameters") : json.find("rope_scaling");
  if (fields != nullptr && fields->has("rope_theta")) return {};
  return json.get_double("rope_theta").status();
}

Result<Rope> make_rope(Builder& b, std::int64_t head_dim, double partial_otherwise) {
  CADRE_ASSIGN(const RopeConfig config,
               read_rope(b.config.json, head_dim, b.config.max_context, {.partial_otherwise = partial_otherwise}));
  return upload_rope(b, config);
}

Result<std::vector<bool>> read_sliding_layers(const Json& json, std::int64_t layers,
                                              const std::function<bool(std::int64_t)>& otherwise) {
  std::vector<bool> out(static_cast<std::size_t>(layers));
  if (!json.has("layer_types")) {
    for (std::int64_t i = 0; i < layers; ++i) out[static_cast<std::size_t>(i)] = otherwise(i);
    return out;
  }
  CADRE_ASSIGN(const std::vector<std::string> types, json.get_string_list("layer_types"));
  if (static_cast<std::int64_t>(types.size()) != layers) {
    return error(Code::kInvalidFile, json.where("layer_types"), " has ", types.size(), " layers, want ", layers,
                 ", num_hidden_layers");
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention") {
      return error(Code::kUnsupported, json.where("layer_types"), " has '", types[i],
                   "', want sliding_attention or full_attention");
    }
    out[i] = types[i] == "sliding_attention";
  }
  return out;
}

std::string sparse_layer_name(Builder& b, const std::string& sign) {
  std::string name = "mlp", other = "block_sparse_moe";
  if (!b.loader.has("model.layers.0.mlp." + sign)) std::swap(name, other);
  b.targets.part_aliases.emplace_back(other, name);
  return name;
}

Status ignore_draft_layers(Builder& b, std::int64_t layers) {
  std::int64_t count = 1;
  for (const std::string_view key : {"num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules"}) {
    CADRE_ASSIGN(count, b.config.json.get_int_or(key, count, 0, 1024));
  }
  for (std::int64_t i = layers; i < layers + count; ++i) {
    b.ignored_prefixes.push_back("model.layers." + std::to_string(i) + ".");
  }
  return {};
}

}  // namespace cadre
