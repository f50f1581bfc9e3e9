#include "moe/spec_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/result.h"
#include "moe/record.h"

namespace cadre {
namespace {

// The enum value that to_string spells this way.
template <class E>
Result<E> parse_name(const Json& json, std::string_view key, E otherwise) {
  if (!json.has(key)) return otherwise;
  CADRE_ASSIGN(const std::string name, json.get_string(key));
  std::string known;
  for (int i = 0; i < kCountOf<E>; ++i) {
    if (to_string(static_cast<E>(i)) == name) return static_cast<E>(i);
    known += (i ? ", " : "") + std::string(to_string(static_cast<E>(i)));
  }
  return error(Code::kInvalidArgument, json.where(key), " is '", name, "', want one of: ", known);
}

Status refuse_unknown(const Json& json, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : json.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string list;
    for (const std::string_view k : known) list += (list.empty() ? "" : ", ") + std::string(k);
    return error(Code::kInvalidArgument, json.where(key), " is unknown, want one of: ", list);
  }
  return {};
}

Result<ActivationSpec> read_activation(const Json& json) {
  CADRE_TRY(refuse_unknown(json, {"kind", "gated", "alpha", "beta", "limit"}));
  ActivationSpec a;
  CADRE_ASSIGN(a.kind, parse_name(json, "kind", a.kind));
  CADRE_ASSIGN(a.gated, json.get_bool_or("gated", a.gated));
  CADRE_ASSIGN(const double alpha, json.get_double_or("alpha", a.alpha));
  CADRE_ASSIGN(const double beta, json.get_double_or("beta", a.beta));
  CADRE_ASSIGN(const double limit, json.get_double_or("limit", a.limit));
  a.alpha = static_cast<float>(alpha);
  a.beta = static_cast<float>(beta);
  a.limit = static_cast<float>(limit);
  return a;
}

Result<RoutingSpec> read_routing(const Json& json) {
  CADRE_TRY(refuse_unknown(json, {"kind", "renormalize", "sum_epsilon", "scale", "selection_bias", "per_expert_scale",
                                  "groups", "topk_groups", "logits"}));
  RoutingSpec r;
  CADRE_ASSIGN(r.kind, parse_name(json, "kind", r.kind));
  CADRE_ASSIGN(r.renormalize, json.get_bool_or("renormalize", r.renormalize));
  CADRE_ASSIGN(const double epsilon, json.get_double_or("sum_epsilon", r.sum_epsilon));
  CADRE_ASSIGN(const double scale, json.get_double_or("scale", r.scale));
  CADRE_ASSIGN(r.selection_bias, json.get_bool_or("selection_bias", r.selection_bias));
  CADRE_ASSIGN(r.per_expert_scale, json.get_bool_or("per_expert_scale", r.per_expert_scale));
  CADRE_ASSIGN(const std::int64_t groups, json.get_int_or("groups", r.groups, 1, 65536));
  CADRE_ASSIGN(const std::int64_t topk_groups, json.get_int_or("topk_groups", r.topk_groups, 1, 65536));
  CADRE_ASSIGN(r.logits, parse_name(json, "logits", r.logits));
  r.sum_epsilon = static_cast<float>(epsilon);
  r.scale = static_cast<float>(scale);
  r.groups = static_cast<int>(groups);
  r.topk_groups = static_cast<int>(topk_groups);
  return r;
}

Result<WeightFormat> read_format(const Json& json) {
  CADRE_TRY(refuse_unknown(json, {"type", "scheme", "block"}));
  WeightFormat f;
  CADRE_ASSIGN(f.type, parse_name(json, "type", f.type));
  CADRE_ASSIGN(f.scheme, parse_name(json, "scheme", f.scheme));
  CADRE_ASSIGN(const std::int64_t block, json.get_int_or("block", 0, 0, 65536));
  f.block = static_cast<int>(block);
  return f;
}

template <class I>
Status read_int(const Json& json, std::string_view key, I& into, std::int64_t max, std::int64_t min = 0) {
  CADRE_ASSIGN(const std::int64_t value, json.get_int_or(key, into, min, max));
  into = static_cast<I>(value);
  return {};
}

Status read_bool(const Json& json, std::string_view key, bool& into) {
  CADRE_ASSIGN(into, json.get_bool_or(key, into));
  return {};
}

// A member that is an object; an empty one where it is absent.
Result<Json> part(const Json& json, std::string_view key) {
  static const Json kEmpty = Json::object({});
  if (!json.has(key)) return kEmpty;
  return json.get_object(key);
}

Result<DeviceCaps> read_device(const Json& json) {
  CADRE_TRY(
      refuse_unknown(json, {"name", "kind", "avx2", "avx512", "avx512_bf16", "amx_bf16", "cores", "sm",
                            "shared_memory_per_block", "memory_gb_s", "bf16_gflop_s", "memory_bytes", "described"}));
  DeviceCaps d;
  CADRE_ASSIGN(d.name, json.get_string_or("name", d.name));
  CADRE_ASSIGN(d.kind, parse_name(json, "kind", d.kind));
  CADRE_TRY(read_bool(json, "avx2", d.avx2));
  CADRE_TRY(read_bool(json, "avx512", d.avx512));
  CADRE_TRY(read_bool(json, "avx512_bf16", d.avx512_bf16));
  CADRE_TRY(read_bool(json, "amx_bf16", d.amx_bf16));
  CADRE_TRY(read_int(json, "cores", d.cores, 1 << 16, 1));
  CADRE_TRY(read_int(json, "sm", d.sm, 319));
  CADRE_TRY(read_int(json, "shared_memory_per_block", d.shared_memory_per_block, Json::kIntMax));
  CADRE_ASSIGN(d.memory_gb_s, json.get_double_or("memory_gb_s", d.memory_gb_s));
  CADRE_ASSIGN(d.bf16_gflop_s, json.get_double_or("bf16_gflop_s", d.bf16_gflop_s));
  CADRE_TRY(read_int(json, "memory_bytes", d.memory_bytes, Json::kIntMax));
  CADRE_TRY(read_bool(json, "described", d.described));
  return d;
}

struct BitName {
  std::string_view name;
  std::uint8_t bit;
};
constexpr std::array<BitName, 3> kProjections = {{{"gate", kGate}, {"up", kUp}, {"down", kDown}}};
constexpr std::array<BitName, 3> kLayouts = {
    {{"per_expert", kPerExpert}, {"shared_gate_up_a", kSharedGateUpA}, {"shared_outer", kSharedOuter}}};

Result<std::uint8_t> read_bits(const Json& json, std::string_view key, const std::array<BitName, 3>& names) {
  unsigned bits = 0;
  if (!json.has(key)) return std::uint8_t{0};
  CADRE_ASSIGN(const std::vector<std::string> list, json.get_string_list(key));
  for (const std::string& item : list) {
    const auto at = std::find_if(names.begin(), names.end(), [&](const BitName& n) { return n.name == item; });
    if (at == names.end()) {
      return error(Code::kInvalidArgument, json.where(key), " has '", item, "', want some of: ", names[0].name, ", ",
                   names[1].name, ", ", names[2].name);
    }
    bits |= at->bit;
  }
  return static_cast<std::uint8_t>(bits);
}

Json bits_value(std::uint8_t bits, const std::array<BitName, 3>& names) {
  std::vector<Json> list;
  for (const BitName& n : names) {
    if ((bits & n.bit) != 0) list.emplace_back(n.name);
  }
  return Json::array(std::move(list));
}

Result<AdapterDemand> read_demand(const Json& json) {
  CADRE_TRY(refuse_unknown(json, {"max_adapters", "max_rank", "projections", "layouts", "fully_sharded"}));
  AdapterDemand a;
  CADRE_TRY(read_int(json, "max_adapters", a.max_adapters, 1 << 16));
  CADRE_TRY(read_int(json, "max_rank", a.max_rank, 1 << 16));
  CADRE_ASSIGN(a.projections, read_bits(json, "projections", kProjections));
  CADRE_ASSIGN(a.layouts, read_bits(json, "layouts", kLayouts));
  CADRE_TRY(read_bool(json, "fully_sharded", a.fully_sharded));
  return a;
}

Result<std::vector<TokenShare>> read_mix(const Json& json) {
  std::vector<TokenShare> mix;
  if (!json.has("token_mix")) return mix;
  CADRE_ASSIGN(const std::vector<Json> list, json.get_array("token_mix"));
  if (list.size() > 64)
    return error(Code::kInvalidArgument, json.where("token_mix"), " has ", list.size(), " entries, want at most 64");
  for (const Json& item : list) {
    if (!item.is_object()) {
      return error(Code::kInvalidArgument, json.where("token_mix"), " has ", describe(item),
                   ", want objects {tokens, weight}");
    }
    CADRE_TRY(refuse_unknown(item, {"tokens", "weight"}));
    TokenShare share;
    CADRE_ASSIGN(const std::int64_t tokens, item.get_int("tokens", 1, kMaxCallTokens));
    CADRE_ASSIGN(share.weight, item.get_double("weight"));
    share.tokens = static_cast<int>(tokens);
    mix.push_back(share);
  }
  return mix;
}

Json device_value(const DeviceCaps& d) {
  return Json::object({{"name", d.name},
                       {"kind", to_string(d.kind)},
                       {"avx2", d.avx2},
                       {"avx512", d.avx512},
                       {"avx512_bf16", d.avx512_bf16},
                       {"amx_bf16", d.amx_bf16},
                       {"cores", d.cores},
                       {"sm", d.sm},
                       {"shared_memory_per_block", d.shared_memory_per_block},
                       {"memory_gb_s", d.memory_gb_s},
                       {"bf16_gflop_s", d.bf16_gflop_s},
                       {"memory_bytes", d.memory_bytes},
                       {"described", d.described}});
}

Json routing_json(const RoutingSpec& r) {
  std::vector<Json::Member> fields;
  fields.reserve(9);
  fields.emplace_back("kind", to_string(r.kind));
  fields.emplace_back("renormalize", r.renormalize);
  if (r.sum_epsilon != 0.0f) fields.emplace_back("sum_epsilon", r.sum_epsilon);
  fields.emplace_back("scale", r.scale);
  fields.emplace_back("selection_bias", r.selection_bias);
  fields.emplace_back("per_expert_scale", r.per_expert_scale);
  fields.emplace_back("groups", r.groups);
  fields.emplace_back("topk_groups", r.topk_groups);
  fields.emplace_back("logits", to_string(r.logits));
  return Json::object(std::move(fields));
}

}  // namespace

Result<LayerSpec> read_layer_spec(const Json& json) {
  if (!json.is_object()) return error(Code::kInvalidArgument, "layer spec: got ", describe(json), ", want an object");
  CADRE_TRY(refuse_unknown(
      json, {"experts", "top_k", "hidden", "intermediate", "latent", "activation", "routing", "weights", "expert_bias",
             "router_bias", "interleaved_gate_up", "router_weight_on_input", "shared_experts", "shared_intermediate"}));
  LayerSpec s;
  CADRE_ASSIGN(const std::int64_t experts, json.get_int("experts", 1, kMaxLayerExperts));
  CADRE_ASSIGN(const std::int64_t top_k, json.get_int("top_k", 1, std::min<std::int64_t>(experts, kMaxLayerTopK)));
  CADRE_ASSIGN(s.hidden, json.get_int("hidden", 1, kMaxLayerWidth));
  CADRE_ASSIGN(s.intermediate, json.get_int("intermediate", 1, kMaxLayerWidth));
  CADRE_ASSIGN(s.latent, json.get_int_or("latent", 0, 0, kMaxLayerWidth));
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("shared_experts", 0, 0, kMaxLayerExperts));
  CADRE_ASSIGN(s.shared_intermediate, json.get_int_or("shared_intermediate", 0, 0, kMaxLayerWidth));
  s.experts = static_cast<int>(experts);
  s.top_k = static_cast<int>(top_k);
  s.shared_experts = static_cast<int>(shared);
  CADRE_ASSIGN(const Json activation, part(json, "activation"));
  CADRE_ASSIGN(s.activation, read_activation(activation));
  CADRE_ASSIGN(const Json routing, part(json, "routing"));
  CADRE_ASSIGN(s.routing, read_routing(routing));
  CADRE_ASSIGN(const Json weights, part(json, "weights"));
  CADRE_ASSIGN(s.weights, read_format(weights));
  CADRE_ASSIGN(s.expert_bias, json.get_bool_or("expert_bias", false));
  CADRE_ASSIGN(s.router_bias, json.get_bool_or("router_bias", false));
  CADRE_ASSIGN(s.interleaved_gate_up, json.get_bool_or("interleaved_gate_up", false));
  CADRE_ASSIGN(s.router_weight_on_input, json.get_bool_or("router_weight_on_input", false));
  if (Status valid = validate(s, Deployment{}); !valid.ok()) return valid;
  return s;
}

Json to_json_value(const LayerSpec& s) {
  std::vector<Json::Member> activation;
  activation.reserve(5);
  activation.emplace_back("kind", to_string(s.activation.kind));
  activation.emplace_back("gated", s.activation.gated);
  if (s.activation.alpha != 1.0f) activation.emplace_back("alpha", s.activation.alpha);
  if (s.activation.beta != 0.0f) activation.emplace_back("beta", s.activation.beta);
  if (std::isfinite(s.activation.limit)) activation.emplace_back("limit", s.activation.limit);
  return Json::object({
      {"experts", s.experts},
      {"top_k", s.top_k},
      {"hidden", s.hidden},
      {"intermediate", s.intermediate},
      {"latent", s.latent},
      {"activation", Json::object(std::move(activation))},
      {"routing", routing_json(s.routing)},
      {"weights",
       Json::object(
           {{"type", to_string(s.weights.type)}, {"scheme", to_string(s.weights.scheme)}, {"block", s.weights.block}})},
      {"expert_bias", s.expert_bias},
      {"router_bias", s.router_bias},
      {"interleaved_gate_up", s.interleaved_gate_up},
      {"router_weight_on_input", s.router_weight_on_input},
      {"shared_experts", s.shared_experts},
      {"shared_intermediate", s.shared_intermediate},
  });
}

Result<Deployment> read_deployment(const Json& json) {
  if (!json.is_object()) return error(Code::kInvalidArgument, "deployment: got ", describe(json), ", want an object");
  CADRE_TRY(
      refuse_unknown(json, {"device", "activations_on", "tensor_parallel", "expert_parallel", "expert_parallel_kind",
                            "data_parallel", "sequence_parallel", "redundant_experts", "rebalance_experts",
                            "activation_type", "format", "adapters", "token_mix", "max_tokens", "need_repeatable",
                            "need_adapter_isolation", "need_batch_invariance", "graph_capture", "workspace_limit"}));
  Deployment d;
  CADRE_ASSIGN(const Json device, part(json, "device"));
  CADRE_ASSIGN(d.device, read_device(device));
  // Activations live where the device is, unless said otherwise.
  CADRE_ASSIGN(d.activations_on, parse_name(json, "activations_on", d.device.kind));
  CADRE_TRY(read_int(json, "tensor_parallel", d.tensor_parallel, kMaxRanks, 1));
  CADRE_TRY(read_int(json, "expert_parallel", d.expert_parallel, kMaxRanks, 1));
  CADRE_ASSIGN(d.expert_parallel_kind, parse_name(json, "expert_parallel_kind", d.expert_parallel_kind));
  CADRE_TRY(read_int(json, "data_parallel", d.data_parallel, kMaxRanks, 1));
  CADRE_TRY(read_bool(json, "sequence_parallel", d.sequence_parallel));
  CADRE_TRY(read_int(json, "redundant_experts", d.redundant_experts, kMaxLayerExperts));
  CADRE_TRY(read_bool(json, "rebalance_experts", d.rebalance_experts));
  CADRE_ASSIGN(d.activation_type, parse_name(json, "activation_type", d.activation_type));
  // Rows come as the dispatch hands them over.
  CADRE_ASSIGN(d.format, parse_name(json, "format", dispatched_format(d.expert_parallel_kind)));
  CADRE_ASSIGN(const Json adapters, part(json, "adapters"));
  CADRE_ASSIGN(d.adapters, read_demand(adapters));
  CADRE_ASSIGN(d.token_mix, read_mix(json));
  CADRE_TRY(read_int(json, "max_tokens", d.max_tokens, kMaxCallTokens, 1));
  CADRE_TRY(read_bool(json, "need_repeatable", d.need_repeatable));
  CADRE_TRY(read_bool(json, "need_adapter_isolation", d.need_adapter_isolation));
  CADRE_TRY(read_bool(json, "need_batch_invariance", d.need_batch_invariance));
  CADRE_TRY(read_bool(json, "graph_capture", d.graph_capture));
  CADRE_TRY(read_int(json, "workspace_limit", d.workspace_limit, Json::kIntMax));
  constexpr LayerSpec kAnyLayer = {.experts = 1, .top_k = 1, .hidden = 1, .intermediate = 1};
  if (Status valid = validate(kAnyLayer, d); !valid.ok()) return valid;
  return d;
}

Json to_json_value(const Deployment& d) {
  std::vector<Json> mix;
  for (const TokenShare& share : d.token_mix) {
    mix.push_back(Json::object({{"tokens", share.tokens}, {"weight", share.weight}}));
  }
  return Json::object({
      {"device", device_value(d.device)},
      {"activations_on", to_string(d.activations_on)},
      {"tensor_parallel", d.tensor_parallel},
      {"expert_parallel", d.expert_parallel},
      {"expert_parallel_kind", to_string(d.expert_parallel_kind)},
      {"data_parallel", d.data_parallel},
      {"sequence_parallel", d.sequence_parallel},
      {"redundant_experts", d.redundant_experts},
      {"rebalance_experts", d.rebalance_experts},
      {"activation_type", to_string(d.activation_type)},
      {"format", to_string(d.format)},
      {"adapters", Json::object({{"max_adapters", d.adapters.max_adapters},
                                 {"max_rank", d.adapters.max_rank},
                                 {"projections", bits_value(d.adapters.projections, kProjections)},
                                 {"layouts", bits_value(d.adapters.layouts, kLayouts)},
                                 {"fully_sharded", d.adapters.fully_sharded}})},
      {"token_mix", Json::array(std::move(mix))},
      {"max_tokens", d.max_tokens},
      {"need_repeatable", d.need_repeatable},
      {"need_adapter_isolation", d.need_adapter_isolation},
      {"need_batch_invariance", d.need_batch_invariance},
      {"graph_capture", d.graph_capture},
      {"workspace_limit", d.workspace_limit},
  });
}

Json to_json_value(const Policy& policy) {
  static constexpr std::array<std::string_view, 4> kKinds = {"auto", "require", "prefer", "exclude"};
  Json name;
  if (policy.names.size() == 1) name = policy.names.front();
  if (policy.names.size() > 1) name = Json::array(policy.names);
  return Json::object(
      {{"kind", kKinds[static_cast<std::size_t>(policy.kind)]}, {"name", name}, {"origin", policy.origin}});
}

Json to_json_value(const Candidate& c) {
  const auto refusals = [](const std::vector<Refusal>& list) {
    std::vector<Json> out;
    for (const Refusal& r : list) {
      out.push_back(Json::object(
          {{"code", reason_info(r.code).code}, {"got", r.got}, {"want", r.want}, {"message", message(r)}}));
    }
    return Json::array(std::move(out));
  };
  const auto times = [](const std::map<int, double>& by_tokens) {
    std::vector<Json::Member> out;
    for (const auto& [tokens, us] : by_tokens) out.emplace_back(std::to_string(tokens), us);
    return Json::object(std::move(out));
  };
  std::vector<Json::Member> members = {{"backend", c.backend},
                                       {"admitted", c.admitted},
                                       {"refusals", refusals(c.refusals)},
                                       {"predicted_us", times(c.predicted_us)},
                                       {"remedies", Json::array(c.remedies)}};
  if (!c.waived.empty()) members.emplace_back("waived", refusals(c.waived));
  if (!c.measured_us.empty()) members.emplace_back("measured_us", times(c.measured_us));
  return Json::object(std::move(members));
}

}  // namespace cadre
