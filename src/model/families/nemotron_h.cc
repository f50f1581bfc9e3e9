// Nemotron-H and Nemotron-3 (arXiv:2504.03624, arXiv:2512.20848): every layer is one mixer: Mamba-2, attention without
// rotary embedding, a plain relu^2 MLP, or a relu^2 MoE without a gate. Routing is DeepSeek-V3's: sigmoid, a selection
// bias, groups, renormalised, scaled. Shared experts see the hidden state; routed experts see the latent vector where
// the model has one.
#include <algorithm>
#include <limits>

#include "base/result.h"
#include "model/blocks/mamba2.h"
#include "model/blocks/moe_mixer.h"
#include "model/families/dense_first.h"

namespace cadre {
namespace {

enum class Kind : std::uint8_t { kMamba, kAttention, kMlp, kMoe };

struct KindName {
  char letter;                        // in hybrid_override_pattern
  std::string_view name, older_name;  // in layers_block_type
  Kind kind;
};
constexpr KindName kKinds[] = {
    {'M', "linear_attention", "mamba", Kind::kMamba},
    {'*', "full_attention", "attention", Kind::kAttention},
    {'-', "mlp", "mlp", Kind::kMlp},
    {'E', "moe", "moe", Kind::kMoe},
};

// layers_block_type (a list of names) or hybrid_override_pattern (a string of letters). Both may be there; they must
// agree, and so must num_hidden_layers.
Result<std::vector<Kind>> read_pattern(const Json& json) {
  std::vector<Kind> from_names, from_letters;
  if (json.has("layers_block_type")) {
    CADRE_ASSIGN(const std::vector<std::string> names, json.get_string_list("layers_block_type"));
    for (const std::string& name : names) {
      const auto* it = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](const KindName& k) { return k.name == name || k.older_name == name; });
      if (it == std::end(kKinds)) {
        return error(Code::kUnsupported, json.where("layers_block_type"), " has '", name,
                     "', want linear_attention (mamba), full_attention (attention), mlp or moe");
      }
      from_names.push_back(it->kind);
    }
  }
  if (json.has("hybrid_override_pattern")) {
    CADRE_ASSIGN(const std::string letters, json.get_string("hybrid_override_pattern"));
    for (const char letter : letters) {
      const auto* it =
          std::find_if(std::begin(kKinds), std::end(kKinds), [&](const KindName& k) { return k.letter == letter; });
      if (it == std::end(kKinds)) {
        return error(Code::kUnsupported, json.where("hybrid_override_pattern"), " has '", std::string(1, letter),
                     "', want M (Mamba-2), * (attention), - (MLP) or E (MoE)");
      }
      from_letters.push_back(it->kind);
    }
  }
  if (!from_names.empty() && !from_letters.empty() && from_names != from_letters) {
    return error(Code::kInvalidFile, json.where("layers_block_type"),
                 " and hybrid_override_pattern contradict each other");
  }
  const std::vector<Kind> kinds = from_names.empty() ? from_letters : from_names;
  if (kinds.empty()) {
    return error(Code::kInvalidFile, json.where("layers_block_type"),
                 " is missing, want the list of layer kinds, or hybrid_override_pattern");
  }
  CADRE_ASSIGN(const std::int64_t layers,
               json.get_int_or("num_hidden_layers", static_cast<std::int64_t>(kinds.size()), 1, kMaxLayers));
  if (layers != static_cast<std::int64_t>(kinds.size())) {
    return error(Code::kInvalidFile, json.where("num_hidden_layers"), " is ", layers, ", but the pattern has ",
                 kinds.size(), " layers");
  }
  return kinds;
}

Result<Mamba2Options> read_mamba(const ModelConfig& c) {
  const Json& json = c.json;
  Mamba2Options o;
  o.hidden = c.hidden;
  constexpr std::int64_t kMaxMamba = 1 << 20;  // products of two of these are added up
  CADRE_ASSIGN(o.heads, config_int(json, {"mamba_num_heads"}, 1, kMaxMamba));
  CADRE_ASSIGN(o.head_dim, config_int(json, {"mamba_head_dim"}, 1, kMaxMamba));
  CADRE_ASSIGN(o.groups, config_int(json, {"n_groups", "mamba_n_groups"}, 1, kMaxMamba));
  CADRE_ASSIGN(o.state, config_int(json, {"ssm_state_size", "mamba_d_state"}, 1, kMaxMamba));
  CADRE_ASSIGN(o.conv_width, config_int(json, {"conv_kernel", "mamba_d_conv"}, 2));
  CADRE_ASSIGN(const bool bias, json.get_bool_or("use_bias", false));
  CADRE_ASSIGN(const bool proj_bias, json.get_bool_or("mamba_proj_bias", false));
  CADRE_ASSIGN(o.conv_bias, json.get_bool_or("use_conv_bias", true));
  CADRE_ASSIGN(const Activation act, config_activation(json, "mamba_hidden_act", "silu"));
  if (act != Activation::kSilu) {
    return error(Code::kUnsupported, json.where("mamba_hidden_act"), ": Mamba-2 is run with silu only");
  }
  o.proj_bias = bias || proj_bias;
  // transformers clamps the step from below at time_step_min and nowhere from above; the config's time_step_limit is
  // not read there. A step below 0.001 is common in random weights and rare in trained ones.
  CADRE_ASSIGN(o.dt_min, config_float(json, "time_step_min", 0.001, 0, 1e30));
  CADRE_ASSIGN(o.dt_min, config_float(json, "mamba_dt_min", o.dt_min, 0, 1e30));
  o.dt_max = std::numeric_limits<float>::infinity();
  return o;
}

Result<LayerSpec> read_moe(const ModelConfig& c, Activation activation) {
  const Json& json = c.json;
  LayerSpec spec;
  CADRE_ASSIGN(const std::int64_t experts, config_int(json, {"n_routed_experts"}, 1, kMaxExperts));
  CADRE_ASSIGN(const std::int64_t top_k, config_int(json, {"num_experts_per_tok"}));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"moe_intermediate_size"}));
  CADRE_ASSIGN(spec.latent, json.get_int_or("moe_latent_size", 0, 1, kMaxConfigSize));
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("n_shared_experts", 0, 0, 1024));
  CADRE_ASSIGN(spec.routing.renormalize, json.get_bool_or("norm_topk_prob", true));
  CADRE_ASSIGN(spec.routing.scale, config_float(json, "routed_scaling_factor", 1.0, -1e30, 1e30));
  CADRE_ASSIGN(const std::int64_t groups, json.get_int_or("n_group", 1, 1, experts));
  CADRE_ASSIGN(const std::int64_t topk_groups, json.get_int_or("topk_group", 1, 1, experts));
  spec.experts = static_cast<int>(experts);
  spec.top_k = static_cast<int>(top_k);
  spec.hidden = c.hidden;
  spec.activation = {.kind = activation, .gated = false};
  spec.shared_experts = static_cast<int>(shared);
  if (shared > 0) {
    CADRE_ASSIGN(spec.shared_intermediate, config_int(json, {"moe_shared_expert_intermediate_size"}));
  }
  spec.routing.kind = Routing::kSigmoidTopK;
  spec.routing.selection_bias = true;
  spec.routing.groups = static_cast<int>(groups);
  spec.routing.topk_groups = static_cast<int>(topk_groups);
  return spec;
}

// Fields that change nothing here: attention does not rotate, the inner size of Mamba is that of its heads, a long scan
// may be cut anywhere, steps are bounded from below only; and those of kinds of layers that the model does not have.
void ignore_fields(Builder& b, const std::vector<Kind>& kinds) {
  std::vector<std::string>& out = b.ignored_fields;
  out = {"rope_*",          "partial_rotary_factor", "expand",         "chunk_size",
         "time_step_limit", "time_step_max",         "time_step_floor"};
  const auto lacks = [&](Kind kind) { return std::find(kinds.begin(), kinds.end(), kind) == kinds.end(); };
  if (lacks(Kind::kMamba)) {
    out.insert(out.end(),
               {"mamba_*", "n_groups", "ssm_state_size", "conv_kernel", "use_bias", "use_conv_bias", "time_step_min"});
  }
  if (lacks(Kind::kAttention)) {
    out.insert(out.end(), {"num_attention_heads", "num_key_value_heads", "head_dim", "attention_bias", "sliding_window",
                           "rms_norm_eps"});
  }
  if (lacks(Kind::kMlp)) out.emplace_back("intermediate_size");
  if (lacks(Kind::kMoe)) {
    out.insert(out.end(), {"moe_*", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "norm_topk_prob",
                           "routed_scaling_factor", "n_group", "topk_group"});
  }
}

}  // namespace

Status build_nemotron_h(Builder& b, Network& network) {
  const ModelConfig& c = b.config;
  const Json& json = c.json;
  CADRE_ASSIGN(const std::vector<Kind> kinds, read_pattern(json));
  CADRE_ASSIGN(const float eps, config_epsilon(json, "layer_norm_epsilon", 1e-5));
  CADRE_ASSIGN(const Activation activation, config_activation(json, "mlp_hidden_act", "relu2"));
  CADRE_ASSIGN(const bool mlp_bias, json.get_bool_or("mlp_bias", false));

  ignore_fields(b, kinds);
  CADRE_ASSIGN(const float other_eps, config_epsilon(json, "norm_eps", static_cast<double>(eps)));
  if (other_eps != eps) {
    return error(Code::kInvalidFile, json.where("norm_eps"), " is ", other_eps, ", want layer_norm_epsilon ", eps);
  }
  CADRE_TRY(want_bool(json, "residual_in_fp32", false));

  // Published files say backbone; transformers 5 and the adapters it writes say model.
  const std::string root = b.loader.has("model.embeddings.weight") ? "model" : "backbone";
  b.targets.prefix_aliases.emplace_back(root == "backbone" ? "model." : "backbone.", root + ".");
  b.targets.part_aliases.emplace_back("embed_tokens", "embeddings");
  b.ignored_prefixes.emplace_back("mtp.");  // the draft layers for multi-token prediction

  CADRE_TRY(b.embedding(network.embedding, root + ".embeddings", c.vocab, c.hidden));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::string prefix = root + ".layers." + std::to_string(i), mixer = prefix + ".mixer";
    Block block;
    CADRE_ASSIGN(block.before, b.norm(prefix + ".norm", c.hidden, eps));
    MlpOptions mlp{
        .module = mixer, .hidden = c.hidden, .activation = {.kind = activation, .gated = false}, .bias = mlp_bias};
    switch (kinds[i]) {
      case Kind::kMamba: {
        CADRE_ASSIGN(Mamba2Options o, read_mamba(c));
        o.module = mixer;
        o.norm_eps = eps;
        CADRE_ASSIGN(block.mixer, make_mamba2(b, o));
        break;
      }
      case Kind::kAttention: {
        CADRE_ASSIGN(AttentionOptions o, read_attention(c));
        CADRE_ASSIGN(o.qkv_bias, json.get_bool_or("attention_bias", false));
        CADRE_TRY(want_int(json, "sliding_window", 0));  // transformers does not read it
        o.out_bias = o.qkv_bias;
        o.module = mixer;
        CADRE_ASSIGN(block.mixer, make_attention(b, o));
        break;
      }
      case Kind::kMlp: {
        CADRE_ASSIGN(mlp.intermediate, config_int(json, {"intermediate_size"}));
        CADRE_ASSIGN(block.mixer, make_mlp(b, mlp));
        break;
      }
      case Kind::kMoe: {
        CADRE_ASSIGN(LayerSpec spec, read_moe(c, activation));
        spec.expert_bias = mlp_bias;
        MoeOptions o{
            .layer = static_cast<int>(i),
            .spec = spec,
            .router = mixer + ".gate",
            .selection_bias = mixer + ".gate.e_score_correction_bias",
            .experts = {.module = mixer + ".experts", .up = "up_proj", .down = "down_proj", .stacked_up = "up_proj"},
            .latent_in = mixer + ".fc1_latent_proj",
            .latent_out = mixer + ".fc2_latent_proj"};
        if (spec.shared_experts > 0) {
          mlp.module = mixer + ".shared_experts";
          mlp.intermediate = spec.shared_intermediate;
          o.shared = mlp;
        }
        CADRE_ASSIGN(block.mixer, make_moe(b, o));
        break;
      }
    }
    network.blocks.push_back(std::move(block));
  }
  CADRE_ASSIGN(network.final_norm, b.norm(root + ".norm_f", c.hidden, eps));
  b.targets.layers = static_cast<int>(kinds.size());
  return b.lm_head(network.lm_head, network.embedding);
}

}  // namespace cadre
