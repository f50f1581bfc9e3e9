// What LayerSpec and Deployment have besides their fields: validity, one line of text, a hash.
#include <cadre/moe_spec.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "base/result.h"

namespace cadre {
namespace {

Status bad(std::string_view what, std::string_view field, const auto& got, const auto&... want) {
  return error(Code::kInvalidArgument, what, ": ", field, " is ", got, ", want ", want...);
}

Status in_range(std::string_view what, std::string_view field, std::int64_t got, std::int64_t min, std::int64_t max) {
  if (got >= min && got <= max) return {};
  return bad(what, field, got, min, " to ", max);
}

Status validate(const LayerSpec& s) {
  constexpr std::string_view kWhat = "layer spec";
  CADRE_TRY(in_range(kWhat, "experts", s.experts, 1, kMaxLayerExperts));
  CADRE_TRY(in_range(kWhat, "top_k", s.top_k, 1, std::min(s.experts, kMaxLayerTopK)));
  CADRE_TRY(in_range(kWhat, "hidden", s.hidden, 1, kMaxLayerWidth));
  CADRE_TRY(in_range(kWhat, "intermediate", s.intermediate, 1, kMaxLayerWidth));
  CADRE_TRY(in_range(kWhat, "latent", s.latent, 0, kMaxLayerWidth));
  CADRE_TRY(in_range(kWhat, "shared_experts", s.shared_experts, 0, kMaxLayerExperts));
  CADRE_TRY(in_range(kWhat, "shared_intermediate", s.shared_intermediate, 0, kMaxLayerWidth));
  CADRE_TRY(in_range(kWhat, "weights.block", s.weights.block, 0, 1 << 16));
  const ActivationSpec& a = s.activation;
  if (!std::isfinite(a.alpha)) return bad(kWhat, "activation.alpha", a.alpha, "a finite number");
  if (!std::isfinite(a.beta)) return bad(kWhat, "activation.beta", a.beta, "a finite number");
  if (!(a.limit > 0)) return bad(kWhat, "activation.limit", a.limit, "a number above 0");
  const RoutingSpec& r = s.routing;
  if (!std::isfinite(r.scale)) return bad(kWhat, "routing.scale", r.scale, "a finite number");
  if (!(r.sum_epsilon >= 0 && r.sum_epsilon <= 1)) {
    return bad(kWhat, "routing.sum_epsilon", r.sum_epsilon, "a number from 0 to 1");
  }
  CADRE_TRY(in_range(kWhat, "routing.groups", r.groups, 1, s.experts));
  if (s.experts % r.groups != 0) return bad(kWhat, "routing.groups", r.groups, "a divisor of ", s.experts, " experts");
  CADRE_TRY(in_range(kWhat, "routing.topk_groups", r.topk_groups, 1, r.groups));
  const int left = s.experts / r.groups * r.topk_groups;
  if (left >= s.top_k) return {};
  return bad(kWhat, "top_k", s.top_k, "at most ", left, ", the experts of ", r.topk_groups, " groups");
}

Status validate(const DeviceCaps& d) {
  constexpr std::string_view kWhat = "device";
  CADRE_TRY(in_range(kWhat, "cores", d.cores, 1, 1 << 16));
  CADRE_TRY(in_range(kWhat, "sm", d.sm, 0, 319));
  for (const auto& [field, value] : {std::pair("memory_gb_s", d.memory_gb_s), {"bf16_gflop_s", d.bf16_gflop_s}}) {
    if (!std::isfinite(value) || value < 0) return bad(kWhat, field, value, "a number of at least 0");
  }
  return {};
}

Status validate(const AdapterDemand& a) {
  constexpr std::string_view kWhat = "adapters";
  CADRE_TRY(in_range(kWhat, "max_adapters", a.max_adapters, 0, 1 << 16));
  CADRE_TRY(in_range(kWhat, "max_rank", a.max_rank, a.any() ? 1 : 0, 1 << 16));
  CADRE_TRY(in_range(kWhat, "projections", a.projections, 0, kGate | kUp | kDown));
  return in_range(kWhat, "layouts", a.layouts, a.any() ? 1 : 0, kPerExpert | kSharedGateUpA | kSharedOuter);
}

Status validate(const std::vector<TokenShare>& mix) {
  double total = 0;
  for (const TokenShare& share : mix) {
    CADRE_TRY(in_range("token mix", "tokens", share.tokens, 1, kMaxCallTokens));
    if (!std::isfinite(share.weight) || share.weight < 0) {
      return bad("token mix", "weight", share.weight, "a number of at least 0");
    }
    total += share.weight;
  }
  if (!mix.empty() && !(total > 0 && std::isfinite(total))) {
    return bad("token mix", "the sum of weights", total, "a number above 0");
  }
  return {};
}

Status validate(const Deployment& d) {
  constexpr std::string_view kWhat = "deployment";
  CADRE_TRY(validate(d.device));
  CADRE_TRY(in_range(kWhat, "tensor_parallel", d.tensor_parallel, 1, kMaxRanks));
  CADRE_TRY(in_range(kWhat, "expert_parallel", d.expert_parallel, 1, kMaxRanks));
  CADRE_TRY(in_range(kWhat, "data_parallel", d.data_parallel, 1, kMaxRanks));
  CADRE_TRY(in_range(kWhat, "redundant_experts", d.redundant_experts, 0, kMaxLayerExperts));
  CADRE_TRY(in_range(kWhat, "max_tokens", d.max_tokens, 1, kMaxCallTokens));
  CADRE_TRY(in_range(kWhat, "workspace_limit", d.workspace_limit, 0, std::numeric_limits<std::int64_t>::max()));
  if (d.expert_parallel > 1 && d.expert_parallel_kind == ExpertParallelKind::kNone) {
    return bad(kWhat, "expert_parallel_kind", "none", "how rows reach the ", d.expert_parallel,
               " ranks, e.g. allgather_reducescatter");
  }
  const ActivationFormat handed = dispatched_format(d.expert_parallel_kind);
  if (handed == ActivationFormat::kBatched && d.format != handed) {
    return bad(kWhat, "format", to_string(d.format), to_string(handed), ", as ", to_string(d.expert_parallel_kind),
               " hands over");
  }
  CADRE_TRY(validate(d.adapters));
  return validate(d.token_mix);
}

// ---- text ---------------------------------------------------------------------------------------------------------

void append_activation(std::ostream& out, const ActivationSpec& a) {
  out << to_string(a.kind) << (a.gated ? " gated" : " without a gate");
  if (a.alpha != 1.0f) out << " alpha " << a.alpha;
  if (a.beta != 0.0f) out << " beta " << a.beta;
  if (std::isfinite(a.limit)) out << " clamped at " << a.limit;
}

void append_routing(std::ostream& out, const RoutingSpec& r) {
  out << to_string(r.kind);
  if (r.renormalize) out << " renormalised";
  if (r.sum_epsilon != 0.0f) out << " with " << r.sum_epsilon;
  if (r.groups > 1) out << ", " << r.topk_groups << " of " << r.groups << " groups";
  if (r.selection_bias) out << ", selection bias";
  if (r.per_expert_scale) out << ", scale by expert";
  if (r.scale != 1.0f) out << ", times " << r.scale;
  if (r.logits != WeightType::kF32) out << ", " << to_string(r.logits) << " logits";
}

void append_adapters(std::ostream& out, const AdapterDemand& a) {
  out << ", up to " << a.max_adapters << (a.max_adapters == 1 ? " adapter" : " adapters") << " of rank " << a.max_rank
      << " on";
  if ((a.projections & kGate) != 0) out << " gate";
  if ((a.projections & kUp) != 0) out << " up";
  if ((a.projections & kDown) != 0) out << " down";
  if ((a.layouts & kSharedGateUpA) != 0) out << ", shared A of gate and up";
  if ((a.layouts & kSharedOuter) != 0) out << ", shared outer factors";
  if (a.fully_sharded) out << ", fully sharded";
}

// ---- hash ---------------------------------------------------------------------------------------------------------

// Every field by name, so that a new one does not compile until it is here.
class Hasher {
 public:
  template <class... T>
  void add(const T&... values) {
    (one(values), ...);
  }
  std::size_t value() const { return value_; }

 private:
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>)
  void one(const T& v) {
    value_ ^= std::hash<T>{}(v) + 0x9e3779b97f4a7c15u + (value_ << 6) + (value_ >> 2);
  }
  template <class T>
  void one(const std::vector<T>& list) {
    one(list.size());
    for (const T& item : list) one(item);
  }
  void one(const ActivationSpec& v) {
    const auto& [kind, gated, alpha, beta, limit] = v;
    add(kind, gated, alpha, beta, limit);
  }
  void one(const RoutingSpec& v) {
    const auto& [kind, renormalize, epsilon, scale, bias, per_expert_scale, groups, topk_groups, logits] = v;
    add(kind, renormalize, epsilon, scale, bias, per_expert_scale, groups, topk_groups, logits);
  }
  void one(const WeightFormat& v) {
    const auto& [type, scheme, block] = v;
    add(type, scheme, block);
  }
  void one(const DeviceCaps& v) {
    const auto& [name, kind, avx2, avx512, avx512_bf16, amx_bf16, cores, sm, shared_memory, gb_s, gflop_s, memory,
                 described] = v;
    add(name, kind, avx2, avx512, avx512_bf16, amx_bf16, cores, sm, shared_memory, gb_s, gflop_s, memory, described);
  }
  void one(const AdapterDemand& v) {
    const auto& [max_adapters, max_rank, projections, layouts, fully_sharded] = v;
    add(max_adapters, max_rank, projections, layouts, fully_sharded);
  }
  void one(const TokenShare& v) {
    const auto& [tokens, weight] = v;
    add(tokens, weight);
  }

  std::size_t value_ = 0;
};

}  // namespace

Status validate(const LayerSpec& spec, const Deployment& deployment) {
  CADRE_TRY(validate(spec));
  return validate(deployment);
}

std::string describe(const LayerSpec& s) {
  std::ostringstream out;
  out << s.experts << " experts, top-" << s.top_k << ", hidden " << s.hidden << ", intermediate " << s.intermediate;
  if (s.latent > 0) out << ", latent " << s.latent;
  out << ", ";
  append_activation(out, s.activation);
  out << ", " << to_string(s.weights.type);
  if (s.weights.scheme != WeightScheme::kPlain) {
    out << ' ' << to_string(s.weights.scheme);
    if (s.weights.block > 0) out << " by " << s.weights.block;
  }
  out << ", ";
  append_routing(out, s.routing);
  if (s.expert_bias) out << ", expert biases";
  if (s.router_bias) out << ", router bias";
  if (s.interleaved_gate_up) out << ", gate and up interleaved";
  if (s.router_weight_on_input) out << ", router weight on the input";
  if (s.shared_experts > 0) out << ", " << s.shared_experts << " shared (" << s.shared_intermediate << ")";
  return std::move(out).str();
}

std::string describe(const Deployment& d) {
  std::ostringstream out;
  out << d.device.name;
  if (d.device.kind == DeviceKind::kCuda) out << " (sm_" << d.device.sm << ')';
  if (d.device.described) out << ", described";
  if (d.activations_on != d.device.kind) out << ", activations on " << to_string(d.activations_on);
  if (d.tensor_parallel > 1) out << ", tp " << d.tensor_parallel;
  if (d.expert_parallel > 1) out << ", ep " << d.expert_parallel;
  if (d.expert_parallel_kind != ExpertParallelKind::kNone) out << " by " << to_string(d.expert_parallel_kind);
  if (d.data_parallel > 1) out << ", dp " << d.data_parallel;
  if (d.sequence_parallel) out << ", sequence parallel";
  if (d.redundant_experts > 0) out << ", " << d.redundant_experts << " redundant experts";
  if (d.rebalance_experts) out << ", rebalanced experts";
  out << ", " << to_string(d.activation_type);
  if (d.format != ActivationFormat::kStandard) out << ", " << to_string(d.format) << " rows";
  if (d.adapters.any()) append_adapters(out, d.adapters);
  out << ", up to " << d.max_tokens << " rows";
  for (const TokenShare& share : d.token_mix) out << ", " << share.tokens << " rows at " << share.weight;
  if (d.need_batch_invariance) out << ", batch invariant";
  if (!d.need_repeatable) out << ", bits may change";
  if (!d.need_adapter_isolation) out << ", adapters may change base bits";
  if (d.graph_capture) out << ", captured in a graph";
  if (d.workspace_limit > 0) out << ", workspace of " << d.workspace_limit << " bytes";
  return std::move(out).str();
}

std::size_t hash_value(const LayerSpec& spec) {
  Hasher h;
  const auto& [experts, top_k, hidden, intermediate, latent, activation, routing, weights, expert_bias, router_bias,
               interleaved, weight_on_input, shared, shared_intermediate] = spec;
  h.add(experts, top_k, hidden, intermediate, latent, activation, routing, weights, expert_bias, router_bias,
        interleaved, weight_on_input, shared, shared_intermediate);
  return h.value();
}

std::size_t hash_value(const Deployment& deployment) {
  Hasher h;
  const auto& [device, activations_on, tp, ep, ep_kind, dp, sp, redundant, rebalance, type, format, adapters, mix,
               max_tokens, repeatable, isolation, invariance, graph, workspace] = deployment;
  h.add(device, activations_on, tp, ep, ep_kind, dp, sp, redundant, rebalance, type, format, adapters, mix, max_tokens,
        repeatable, isolation, invariance, graph, workspace);
  return h.value();
}

}  // namespace cadre
