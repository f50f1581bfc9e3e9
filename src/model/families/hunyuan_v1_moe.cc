// Hunyuan (Tencent-Hunyuan-Large, A13B): queries and keys normalised by head after the rotation; softmax over all
// experts, top-k, renormalised; one shared MLP; top-k may differ by layer. The published rotation is "dynamic" with an
// alpha, which enlarges the base at every length.
#include "base/result.h"
#include "model/families/dense_first.h"

namespace cadre {
namespace {

// A number for all layers, or a list with one for each.
Result<std::int64_t> layer_int(const Json& json, std::string_view key, std::int64_t layer, std::int64_t otherwise) {
  const Json* value = json.find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (!value->is_array()) return json.get_int(key, 1, kMaxConfigSize);
  CADRE_ASSIGN(const std::vector<std::int64_t> list, json.get_int_list(key));
  if (layer >= static_cast<std::int64_t>(list.size())) {
    return error(Code::kInvalidFile, json.where(key), " has ", list.size(), " values, want one for each layer");
  }
  const std::int64_t got = list[static_cast<std::size_t>(layer)];
  if (got < 1 || got > kMaxConfigSize) {
    return error(Code::kInvalidFile, json.where(key), ": value ", layer, " is ", got, ", want 1 to ", kMaxConfigSize);
  }
  return got;
}

}  // namespace

Status build_hunyuan_v1_moe(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_ASSIGN(const std::int64_t layers, config_int(json, {"num_hidden_layers"}, 1, kMaxLayers));
  CADRE_ASSIGN(AttentionOptions attention, read_attention(b.config));
  if (!json.has("head_dim")) {
    CADRE_ASSIGN(attention.head_dim, json.get_int_or("attention_head_dim", attention.head_dim, 1, 65536));
  }
  CADRE_ASSIGN(attention.qkv_bias, json.get_bool_or("attention_bias", false));
  attention.out_bias = attention.qkv_bias;
  attention.qk_norm = AttentionOptions::QkNorm::kPerHead;
  attention.qk_norm_after_rope = true;
  attention.q_norm = "query_layernorm";
  attention.k_norm = "key_layernorm";
  CADRE_TRY(want_bool(json, "use_qk_norm", true));
  CADRE_TRY(want_bool(json, "use_cla", false));  // layers that share keys and values
  CADRE_TRY(want_bool(json, "norm_topk_prob", true));
  CADRE_TRY(want_bool(json, "mlp_bias", false));
  CADRE_TRY(want_int(json, "moe_layer_num_skipped", 0));
  for (const char* key : {"use_mla", "group_limited_greedy", "position_embedding_xdrope"}) {
    CADRE_TRY(want_bool(json, key, false));
  }
  CADRE_TRY(want_bool(json, "use_rotary_pos_emb", true));
  CADRE_TRY(want_bool(json, "use_mixed_mlp_moe", true));
  CADRE_TRY(want_string(json, "norm_type", {"rms"}));
  CADRE_TRY(want_int(json, "attention_head_dim", attention.head_dim));
  // Of layers that share keys, of heads that classify, of images, and of training that drops tokens.
  b.ignored_fields.insert(b.ignored_fields.end(),
                          {"cla_share_factor", "class_num", "pool_type", "dense_list", "num_media_embeds", "*_id",
                           "moe_drop_tokens", "moe_random_routing_dropped_token", "org_vocab_size", "vit_*"});
  const Json* rope_fields = json.find(json.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  if (rope_fields != nullptr && rope_fields->has("alpha")) {  // which is all that counts then
    b.ignored_fields.insert(b.ignored_fields.end(),
                            {"*.factor", "*.beta_fast", "*.beta_slow", "*.mscale", "*.mscale_all_dim"});
  }
  CADRE_ASSIGN(const RopeConfig rotation,
               read_rope(json, attention.head_dim, b.config.max_context, {.base_factor = true}));
  CADRE_ASSIGN(const Rope rope, upload_rope(b, rotation));
  attention.rope = &rope;

  LayerSpec spec;
  CADRE_ASSIGN(spec.activation.kind, config_activation(json, "hidden_act", "silu"));
  CADRE_ASSIGN(spec.intermediate, config_int(json, {"intermediate_size"}));
  spec.hidden = b.config.hidden;
  spec.shared_experts = 1;
  spec.shared_intermediate = spec.intermediate;
  spec.routing.kind = Routing::kSoftmaxTopK;
  spec.routing.renormalize = true;

  return build_decoder(
      b, network,
      {.attention =
           [&](int, const std::string& prefix) {
             attention.module = prefix + ".self_attn";
             return make_attention(b, attention);
           },
       .feed_forward = [&](int layer, const std::string& prefix) -> Result<std::unique_ptr<Mixer>> {
         const std::string mlp = prefix + ".mlp";
         CADRE_ASSIGN(const std::int64_t experts, layer_int(json, "num_experts", layer, 1));
         CADRE_ASSIGN(const std::int64_t top_k, layer_int(json, "moe_topk", layer, 1));
         CADRE_ASSIGN(const std::int64_t shared, layer_int(json, "num_shared_expert", layer, 1));
         CADRE_ASSIGN(const std::int64_t size, layer_int(json, "moe_intermediate_size", layer, spec.intermediate));
         if (shared != 1 || size != spec.intermediate || experts > kMaxExperts) {
           return error(Code::kUnsupported, json.where("num_shared_expert"), ": layer ", layer, " has ", shared,
                        " shared experts and experts of ", size, ", want 1 and intermediate_size ", spec.intermediate);
         }
         spec.experts = static_cast<int>(experts);
         spec.top_k = static_cast<int>(top_k);
         const MlpOptions together{.module = mlp + ".shared_mlp",
                                   .hidden = spec.hidden,
                                   .intermediate = spec.shared_intermediate,
                                   .activation = spec.activation};
         return make_moe(
             b, {.layer = layer,
                 .spec = spec,
                 .router = mlp + ".gate.wg",
                 .experts = {.module = mlp + ".experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"},
                 .shared = together});
       },
       .layers = layers});
}

}  // namespace cadre
