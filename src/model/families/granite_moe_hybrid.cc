// Granite 4 (granitemoehybrid): each layer is Mamba-2 or attention by layer_types, then routed and shared experts, or
// the shared ones alone where num_local_experts is 0. Attention has no positions unless position_embedding_type says
// rope. Mamba's gated norm spans all groups, so on several ranks each one computes the Mamba layers whole.
#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "model/blocks/mamba2.h"
#include "model/families/granite.h"

namespace cadre {
namespace {

// Which layers are Mamba; all, where the config does not say. transformers 4 says mamba and attention.
Result<std::vector<bool>> read_mamba_layers(const Json& json, std::int64_t layers) {
  std::vector<bool> mamba;
  const char* key = json.has("layer_types") ? "layer_types" : "layers_block_type";
  if (!json.has(key)) return std::vector<bool>(static_cast<std::size_t>(layers), true);
  CADRE_ASSIGN(const std::vector<std::string> types, json.get_string_list(key));
  for (const std::string& type : types) {
    const bool is_mamba = type == "linear_attention" || type == "mamba";
    if (!is_mamba && type != "full_attention" && type != "attention") {
      return error(Code::kUnsupported, json.where(key), " has '", type,
                   "', want linear_attention or mamba, full_attention or attention");
    }
    mamba.push_back(is_mamba);
  }
  if (static_cast<std::int64_t>(types.size()) != layers) {
    return error(Code::kInvalidFile, json.where(key), " has ", types.size(), " layers, want ", layers,
                 " as num_hidden_layers says");
  }
  return mamba;
}

Result<Mamba2Options> read_mamba(const ModelConfig& c) {
  const Json& json = c.json;
  constexpr std::int64_t kMaxMamba = 1 << 20;  // products of two of these are added up
  Mamba2Options o;
  o.hidden = c.hidden;
  CADRE_ASSIGN(o.heads, json.get_int_or("mamba_n_heads", 128, 1, kMaxMamba));
  CADRE_ASSIGN(o.groups, json.get_int_or("mamba_n_groups", 1, 1, kMaxMamba));
  CADRE_ASSIGN(o.state, json.get_int_or("mamba_d_state", 256, 1, kMaxMamba));
  CADRE_ASSIGN(o.conv_width, json.get_int_or("mamba_d_conv", 4, 2, kMaxMamba));
  CADRE_ASSIGN(const std::int64_t expand, json.get_int_or("mamba_expand", 2, 1, 1024));
  const std::int64_t inner = expand * c.hidden;
  const Json* head_dim = json.find("mamba_d_head");
  if (head_dim == nullptr || head_dim->is_null() || head_dim->is_string()) {  // "auto"
    o.head_dim = inner / o.heads;
  } else {
    CADRE_ASSIGN(o.head_dim, json.get_int("mamba_d_head", 1, kMaxMamba));
  }
  if (o.heads * o.head_dim != inner || o.head_dim > kMaxMamba) {
    return error(Code::kInvalidFile, json.where("mamba_n_heads"), " is ", o.heads, " with heads of ", o.head_dim,
                 " dimensions, want ", inner, " together, mamba_expand times hidden_size");
  }
  if (o.heads % o.groups != 0) {
    return error(Code::kInvalidFile, json.where("mamba_n_heads"), " is ", o.heads, ", want a multiple of ",
                 "mamba_n_groups ", o.groups);
  }
  CADRE_ASSIGN(o.conv_bias, json.get_bool_or("mamba_conv_bias", true));
  CADRE_ASSIGN(o.proj_bias, json.get_bool_or("mamba_proj_bias", false));
  CADRE_ASSIGN(o.norm_eps, config_epsilon(json, "rms_norm_eps", 1e-6));
  o.norm_groups = 1;
  o.dt_min = 0;
  o.dt_max = INFINITY;
  if (json.has("time_step_limit")) {
    CADRE_ASSIGN(const std::vector<double> limit, json.get_double_list("time_step_limit"));
    if (limit.size() != 2 || !(limit[0] >= 0 && limit[0] <= limit[1])) {
      return error(Code::kInvalidFile, json.where("time_step_limit"), ": want two numbers from 0 on, the lower first");
    }
    o.dt_min = static_cast<float>(limit[0]);
    o.dt_max = static_cast<float>(limit[1]);
  }
  return o;
}

// Whether attention rotates.
Result<bool> read_positions(const Json& json) {
  CADRE_ASSIGN(const std::string type, json.get_string_or("position_embedding_type", "nope"));
  if (type != "nope" && type != "rope") {
    return error(Code::kUnsupported, json.where("position_embedding_type"), " is '", type,
                 "', want rope, nope or null");
  }
  return type == "rope";
}

}  // namespace

Status build_granite_moe_hybrid(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(Granite granite, read_granite(b.config, network, {.shared = true, .dense_allowed = true}));
  CADRE_ASSIGN(const std::vector<bool> is_mamba, read_mamba_layers(json, granite.layers));
  AttentionOptions& attention = granite.attention;
  Rope rope;
  CADRE_ASSIGN(const bool rotates, read_positions(json));
  if (rotates) {
    CADRE_ASSIGN(rope, make_rope(b, attention.head_dim));
    attention.rope = &rope;
  } else {
    b.ignored_fields.emplace_back("rope_*");  // nothing rotates
  }
  const bool any_mamba = std::find(is_mamba.begin(), is_mamba.end(), true) != is_mamba.end();
  Mamba2Options mamba;
  if (any_mamba) {
    if (granite.spec.activation.kind != Activation::kSilu) {
      return error(Code::kUnsupported, json.where("hidden_act"), ": Mamba-2 is run with silu only");
    }
    CADRE_ASSIGN(mamba, read_mamba(b.config));
    b.ignored_fields.emplace_back("mamba_chunk_size");  // how a long scan is cut
  } else {
    b.ignored_fields.insert(b.ignored_fields.end(), {"mamba_*", "time_step_limit"});  // of layers it does not have
  }
  if (granite.spec.experts == 0) {
    b.ignored_fields.insert(b.ignored_fields.end(), {"num_experts_per_tok", "intermediate_size"});
  }
  return build_decoder(
      b, network,
      {.attention = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
         if (is_mamba[static_cast<std::size_t>(layer)]) {
           mamba.module = prefix + ".mamba";
           return make_mamba2(b, mamba);
         }
         attention.module = prefix + ".self_attn";
         return make_attention(b, attention);
       },
       .feed_forward = [&](int layer,
                           const std::string& prefix) { return make_granite_feed_forward(b, granite, layer, prefix); },
       .layers = granite.layers,
       .residual_scale = granite.residual_scale});
}

}  // namespace cadre
