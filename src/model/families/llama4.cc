// Llama 4 (Scout, Maverick), the text part. Most layers rotate neighbours and see keys of their own chunk of positions,
// with queries and keys normalised without weights after the rotation (not in Maverick); every fourth neither rotates
// nor has chunks, and its queries grow with the position. The router's sigmoid multiplies what an expert reads, a
// shared expert is always added, and some layers may be dense. Experts lie as [E, in, out].
#include <algorithm>

#include "base/result.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/decoder.h"

namespace cadre {
namespace {

struct Layers {
  std::vector<bool> rope, chunked, moe;
};

Result<Layers> read_layers(const Json& json, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  Layers out{.rope = std::vector<bool>(size), .chunked = {}, .moe = std::vector<bool>(size)};
  CADRE_ASSIGN(const std::int64_t interval, json.get_int_or("no_rope_layer_interval", 4, 1, kMaxLayers));
  CADRE_ASSIGN(const std::int64_t step, json.get_int_or("interleave_moe_layer_step", 1, 1, kMaxLayers));
  for (std::size_t i = 0; i < size; ++i) {
    out.rope[i] = (i + 1) % static_cast<std::size_t>(interval) != 0;
    out.moe[i] = (i + 1) % static_cast<std::size_t>(step) == 0;
  }
  if (json.has("no_rope_layers")) {  // an empty list stands for the interval; 1 means that the layer does rotate
    CADRE_ASSIGN(const std::vector<std::int64_t> list, json.get_int_list("no_rope_layers"));
    if (!list.empty() && list.size() < size) {
      return error(Code::kInvalidFile, json.where("no_rope_layers"), " has ", list.size(), " layers, want ", count,
                   " by num_hidden_layers");
    }
    for (std::size_t i = 0; i < size && !list.empty(); ++i) out.rope[i] = list[i] != 0;
  }
  if (json.has("moe_layers")) {
    CADRE_ASSIGN(const std::vector<std::int64_t> list, json.get_int_list("moe_layers"));
    out.moe.assign(size, false);
    for (const std::int64_t i : list) {
      if (i >= 0 && i < count) out.moe[static_cast<std::size_t>(i)] = true;
    }
  }
  out.chunked = out.rope;
  if (json.has("layer_types")) {
    CADRE_ASSIGN(const std::vector<std::string> types, json.get_string_list("layer_types"));
    if (types.size() != size) {
      return error(Code::kInvalidFile, json.where("layer_types"), " has ", types.size(), " layers, want ", count,
                   " by num_hidden_layers");
    }
    for (std::size_t i = 0; i < size; ++i) {
      out.chunked[i] = types[i] == "chunked_attention";
      if (!out.chunked[i] && types[i] != "full_attention") {
        return error(Code::kUnsupported, json.where("layer_types"), " has '", types[i],
                     "', want chunked_attention or full_attention");
      }
    }
  }
  return out;
}

// Keys seen by layers with chunks.
Result<std::int64_t> read_chunk(const Json& json, const Layers& layers) {
  const Json* chunk = json.find("attention_chunk_size");
  const bool any = std::find(layers.chunked.begin(), layers.chunked.end(), true) != layers.chunked.end();
  if (any && chunk != nullptr && chunk->is_null()) {
    return error(Code::kInvalidFile, json.where("attention_chunk_size"),
                 " is null, want a size for the layers of chunked_attention");
  }
  return json.get_int_or("attention_chunk_size", 8192, 1, kMaxConfigSize);
}

// The first published files have a number here.
Result<bool> read_temperature(const Json& json) {
  const Json* value = json.find("attn_temperature_tuning");
  if (value == nullptr || !value->is_number()) return json.get_bool_or("attn_temperature_tuning", true);
  CADRE_ASSIGN(const double number, value->as_double(json.where("attn_temperature_tuning")));
  return number != 0;
}

Result<LayerSpec> read_experts(const ModelConfig& c) {
  CADRE_ASSIGN(LayerSpec spec, read_softmax_experts(c, "num_local_experts", "intermediate_size"));
  spec.routing = {.kind = Routing::kSigmoidInput};
  spec.router_weight_on_input = true;
  spec.shared_experts = 1;
  spec.shared_intermediate = spec.intermediate;
  return spec;
}

Result<Rope> read_rotation(Builder& b, std::int64_t head_dim) {
  const Json& json = b.config.json;
  CADRE_TRY(require_rope_theta(json));
  CADRE_ASSIGN(Rope rope, make_rope(b, head_dim));
  if (rope.dim != head_dim) {
    return error(Code::kUnsupported, json.where("partial_rotary_factor"), ": llama4_text rotates whole heads, want 1");
  }
  rope.interleaved = true;
  return rope;
}

}  // namespace

Status build_llama4(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t count, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(const Layers layers, read_layers(json, count));
  // The defaults of other families are others.
  CADRE_TRY(json.get_double("rms_norm_eps").status());
  CADRE_TRY(json.get_int("num_key_value_heads").status());
  CADRE_TRY(json.get_int("head_dim").status());
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  attention.out_bias = attention.qkv_bias;
  attention.qk_norm_after_rope = true;
  CADRE_ASSIGN(const std::int64_t chunk, read_chunk(json, layers));
  CADRE_ASSIGN(const bool qk_norm, json.get_bool_or("use_qk_norm", true));
  CADRE_ASSIGN(const bool temperature, read_temperature(json));
  CADRE_ASSIGN(const float attn_scale, config_float(json, "attn_scale", 0.1, -1e6, 1e6));
  CADRE_ASSIGN(const float floor_scale, config_float(json, "floor_scale", 8192, 1e-6, 1e12));
  CADRE_ASSIGN(const Rope rope, read_rotation(b, attention.head_dim));
  CADRE_ASSIGN(const LayerSpec spec, read_experts(b.config));
  b.ignored_fields.insert(b.ignored_fields.end(), {"router_jitter_noise", "cache_implementation"});  // of training
  CADRE_ASSIGN(const std::int64_t dense, json.get_int_or("intermediate_size_mlp", 16384, 1, kMaxConfigSize));

  const auto make_layer_attention = [&](int layer, const std::string& prefix) {
    const auto i = static_cast<std::size_t>(layer);
    AttentionOptions o = attention;
    o.module = prefix + ".self_attn";
    o.chunk = layers.chunked[i] ? chunk : 0;
    if (layers.rope[i]) {
      o.rope = &rope;
      if (qk_norm) o.qk_norm = AttentionOptions::QkNorm::kPerHeadPlain;
    } else if (temperature) {
      o.temperature_scale = attn_scale;
      o.temperature_floor = floor_scale;
    }
    return make_attention(b, o);
  };
  const auto make_feed_forward = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
    const std::string module = prefix + ".feed_forward";
    MlpOptions mlp{.module = module, .hidden = spec.hidden, .intermediate = dense, .activation = spec.activation};
    if (!layers.moe[static_cast<std::size_t>(layer)]) return make_mlp(b, mlp);
    mlp.module = module + ".shared_expert";
    mlp.intermediate = spec.shared_intermediate;
    CADRE_ASSIGN(auto moe, make_moe(b, {.layer = layer,
                                        .spec = spec,
                                        .router = module + ".router",
                                        .experts = {.module = module + ".experts",
                                                    .gate = "gate_proj",
                                                    .up = "up_proj",
                                                    .down = "down_proj",
                                                    .transposed = true},
                                        .shared = mlp}));
    // transformers does not mark this family's experts as [E, in, out], so PEFT takes the dimensions the other way
    // around: today's files are what "swapped" ones are elsewhere. The shapes tell.
    b.targets.experts.back().transposed = false;
    return moe;
  };
  return build_decoder(b, network,
                       {.attention = make_layer_attention, .feed_forward = make_feed_forward, .layers = count});
}

}  // namespace cadre
