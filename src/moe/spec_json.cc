#include "moe/spec_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/result.h"
#include "moe/record.h"

namespace cadre {
namespace {

// The enum value that to_string spells this way, among the first `count`.
template <class E>
Result<E> parse_name(const Json& json, std::string_view key, E otherwise, int count) {
  if (!json.has(key)) return otherwise;
  CADRE_ASSIGN(const std::string name, json.get_string(key));
  std::string known;
  for (int i = 0; i < count; ++i) {
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

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

Result<ActivationSpec> read_activation(const Json& json) {
  CADRE_TRY(refuse_unknown(json, {"kind", "gated", "alpha", "beta", "limit"}));
  ActivationSpec a;
  CADRE_ASSIGN(a.kind, parse_name(json, "kind", a.kind, 5));
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
  CADRE_TRY(refuse_unknown(
      json, {"kind", "renormalize", "scale", "selection_bias", "per_expert_scale", "groups", "topk_groups"}));
  RoutingSpec r;
  CADRE_ASSIGN(r.kind, parse_name(json, "kind", r.kind, 5));
  CADRE_ASSIGN(r.renormalize, json.get_bool_or("renormalize", r.renormalize));
  CADRE_ASSIGN(const double scale, json.get_double_or("scale", r.scale));
  CADRE_ASSIGN(r.selection_bias, json.get_bool_or("selection_bias", r.selection_bias));
  CADRE_ASSIGN(r.per_expert_scale, json.get_bool_or("per_expert_scale", r.per_expert_scale));
  CADRE_ASSIGN(const std::int64_t groups, json.get_int_or("groups", r.groups, 1, 65536));
  CADRE_ASSIGN(const std::int64_t topk_groups, json.get_int_or("topk_groups", r.topk_groups, 1, 65536));
  r.scale = static_cast<float>(scale);
  r.groups = static_cast<int>(groups);
  r.topk_groups = static_cast<int>(topk_groups);
  return r;
}

Result<WeightFormat> read_format(const Json& json) {
  CADRE_TRY(refuse_unknown(json, {"type", "scheme", "block"}));
  WeightFormat f;
  CADRE_ASSIGN(f.type, parse_name(json, "type", f.type, 5));
  CADRE_ASSIGN(f.scheme, parse_name(json, "scheme", f.scheme, 2));
  CADRE_ASSIGN(const std::int64_t block, json.get_int_or("block", 0, 0, 65536));
  f.block = static_cast<int>(block);
  return f;
}

}  // namespace

Result<LayerSpec> read_layer_spec(const Json& json) {
  if (!json.is_object()) return error(Code::kInvalidArgument, "layer spec: got ", describe(json), ", want an object");
  CADRE_TRY(refuse_unknown(
      json, {"experts", "top_k", "hidden", "intermediate", "latent", "activation", "routing", "weights", "expert_bias",
             "router_bias", "interleaved_gate_up", "router_weight_on_input", "shared_experts", "shared_intermediate"}));
  LayerSpec s;
  CADRE_ASSIGN(const std::int64_t experts, json.get_int("experts", 1, 65536));
  CADRE_ASSIGN(const std::int64_t top_k, json.get_int("top_k", 1, experts));
  CADRE_ASSIGN(s.hidden, json.get_int("hidden", 1, kMaxSize));
  CADRE_ASSIGN(s.intermediate, json.get_int("intermediate", 1, kMaxSize));
  CADRE_ASSIGN(s.latent, json.get_int_or("latent", 0, 0, kMaxSize));
  CADRE_ASSIGN(const std::int64_t shared, json.get_int_or("shared_experts", 0, 0, 65536));
  CADRE_ASSIGN(s.shared_intermediate, json.get_int_or("shared_intermediate", 0, 0, kMaxSize));
  s.experts = static_cast<int>(experts);
  s.top_k = static_cast<int>(top_k);
  s.shared_experts = static_cast<int>(shared);
  const auto part = [&](std::string_view key) -> Result<Json> {
    if (!json.has(key)) return Json::object({});
    return json.get_object(key);
  };
  CADRE_ASSIGN(const Json activation, part("activation"));
  CADRE_ASSIGN(s.activation, read_activation(activation));
  CADRE_ASSIGN(const Json routing, part("routing"));
  CADRE_ASSIGN(s.routing, read_routing(routing));
  CADRE_ASSIGN(const Json weights, part("weights"));
  CADRE_ASSIGN(s.weights, read_format(weights));
  CADRE_ASSIGN(s.expert_bias, json.get_bool_or("expert_bias", false));
  CADRE_ASSIGN(s.router_bias, json.get_bool_or("router_bias", false));
  CADRE_ASSIGN(s.interleaved_gate_up, json.get_bool_or("interleaved_gate_up", false));
  CADRE_ASSIGN(s.router_weight_on_input, json.get_bool_or("router_weight_on_input", false));
  return s;
}

Json to_json_value(const LayerSpec& s) {
  std::vector<Json::Member> activation = {{"kind", to_string(s.activation.kind)}, {"gated", s.activation.gated}};
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
      {"routing", Json::object({{"kind", to_string(s.routing.kind)},
                                {"renormalize", s.routing.renormalize},
                                {"scale", s.routing.scale},
                                {"selection_bias", s.routing.selection_bias},
                                {"per_expert_scale", s.routing.per_expert_scale},
                                {"groups", s.routing.groups},
                                {"topk_groups", s.routing.topk_groups}})},
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
