#include "moe/record.h"

#include <cstdio>
#include <sstream>

namespace cadre {
namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

// "silu, relu2" for a set of an enum's values.
template <class E>
std::string list(std::uint32_t set) {
  std::string out;
  for (int i = 0; i < kCountOf<E>; ++i) {
    const E value = static_cast<E>(i);
    if ((set & bit(value)) != 0) append(out, to_string(value));
  }
  return out.empty() ? "none" : out;
}

std::string isa_list(const DeviceCaps& caps) {
  std::string out;
  if (caps.avx2) append(out, to_string(CpuIsa::kAvx2));
  if (caps.avx512) append(out, to_string(CpuIsa::kAvx512));
  if (caps.avx512_bf16) append(out, to_string(CpuIsa::kAvx512Bf16));
  if (caps.amx_bf16) append(out, to_string(CpuIsa::kAmxBf16));
  return out.empty() ? "none of them" : out;
}

bool has_isa(const DeviceCaps& caps, CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAny:
      return true;
    case CpuIsa::kAvx2:
      return caps.avx2;
    case CpuIsa::kAvx512:
      return caps.avx512;
    case CpuIsa::kAvx512Bf16:
      return caps.avx512_bf16;
    case CpuIsa::kAmxBf16:
      return caps.amx_bf16;
  }
  return false;
}

class Check {
 public:
  // Records a refusal unless `holds`.
  void want(bool holds, Reason code, std::string got, std::string wanted) {
    if (!holds) refusals_.push_back({code, std::move(got), std::move(wanted)});
  }
  // The same for texts that are known; they become strings only where one fails.
  void want(bool holds, Reason code, const char* got, const char* wanted) {
    if (!holds) refusals_.push_back({code, got, wanted});
  }
  template <class E>
  void in_set(std::uint32_t set, E value, Reason code) {
    if ((set & bit(value)) == 0) want(false, code, std::string(to_string(value)), list<E>(set));
  }
  void at_most(std::int64_t value, std::int64_t limit, Reason code) {
    if (value > limit) want(false, code, text(value), text("at most ", limit));
  }
  void multiple_of(std::int64_t value, std::int64_t of, Reason code) {
    if (value % of != 0) want(false, code, text(value), text("a multiple of ", of));
  }
  std::vector<Refusal> take() { return std::move(refusals_); }

 private:
  std::vector<Refusal> refusals_;
};

void check_device(Check& c, const MoeRecord& r, const Deployment& d) {
  c.want(r.built, Reason::kNotInThisBuild, "one without this backend", "one that includes it");
  c.in_set(r.devices, d.device.kind, Reason::kDeviceKind);
  if (d.device.described && (r.devices & bit(d.device.kind)) != 0) {
    c.want(false, Reason::kDeviceAbsent, d.device.name + ", described only", "one that is here");
  }
  c.in_set(r.activations_on, d.activations_on, Reason::kActivationsElsewhere);
  if (d.device.kind == DeviceKind::kCpu && !has_isa(d.device, r.cpu_isa)) {
    c.want(false, Reason::kInstructionSet, isa_list(d.device), std::string(to_string(r.cpu_isa)));
  }
  if (d.device.kind == DeviceKind::kCuda && (r.sm_families & sm_family(d.device.sm)) == 0) {
    std::string families;
    for (int f = 0; f < 32; ++f) {
      if ((r.sm_families >> f & 1u) != 0) append(families, text("sm_", f, "x"));
    }
    c.want(false, Reason::kComputeCapability, text("sm_", d.device.sm), families.empty() ? "none" : families);
  }
}

void check_activation(Check& c, const MoeRecord& r, const ActivationSpec& a) {
  const std::uint32_t mine = a.gated ? r.gated_activations : r.plain_activations;
  if (mine == 0) {
    c.want(false, a.gated ? Reason::kGated : Reason::kNotGated, a.gated ? "act(gate) * up" : "act(up) without a gate",
           a.gated ? "act(up) without a gate" : "act(gate) * up");
  } else {
    c.in_set(mine, a.kind, Reason::kActivation);
  }
  if (a.limit != std::numeric_limits<float>::infinity() && !r.clamp) {
    c.want(false, Reason::kActivationClamp, text("one at ", a.limit), "none");
  }
  if ((a.alpha != 1.0f || a.beta != 0.0f) && !r.activation_parameters) {
    c.want(false, Reason::kActivationParameters, text("alpha ", a.alpha, ", beta ", a.beta), "alpha 1, beta 0");
  }
}

void check_routing(Check& c, const MoeRecord& r, const RoutingSpec& s) {
  c.in_set(r.routings, s.kind, Reason::kRouting);
  if (!s.renormalize && (r.routings & bit(s.kind)) != 0 && (r.routings_unnormalized & bit(s.kind)) == 0) {
    c.want(false, Reason::kRouting, std::string(to_string(s.kind)) + " without renormalisation",
           std::string(to_string(s.kind)) + " with it");
  }
  c.in_set(r.router_logits, s.logits, Reason::kRouterLogitsType);
  c.want(!s.selection_bias || r.selection_bias, Reason::kRouting, "a selection bias", "no selection bias");
  if (s.groups > 1 && !r.groups) c.want(false, Reason::kRouting, text(s.groups, " groups of experts"), "no groups");
  c.want(!s.per_expert_scale || r.per_expert_scale, Reason::kRouting, "a scale for each expert",
         "no scale for each expert");
}

void check_mathematics(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  c.in_set(r.weight_types, s.weights.type, Reason::kWeightType);
  c.in_set(r.weight_schemes, s.weights.scheme, Reason::kWeightScheme);
  c.in_set(r.activation_types, d.activation_type, Reason::kActivationType);
  check_activation(c, r, s.activation);
  c.want(!s.expert_bias || r.expert_bias, Reason::kExpertBias, "biases", "none");
  c.want(!s.router_bias || r.router_bias, Reason::kRouterBias, "one", "none");
  check_routing(c, r, s.routing);
  c.want(!s.router_weight_on_input || r.router_weight_on_input, Reason::kRouterWeightOnInput, "on the expert's input",
         "on the expert's output");
  c.want(!s.interleaved_gate_up || r.interleaved_gate_up, Reason::kInterleavedGateUp, "interleaved",
         "all of gate, then all of up");
}

void check_sizes(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  c.at_most(experts_per_rank(s, d), r.max_experts, Reason::kTooManyExperts);
  c.at_most(s.top_k, r.max_top_k, Reason::kTopK);
  c.at_most(s.expert_width(), r.max_width, Reason::kHiddenSize);
  c.multiple_of(s.expert_width(), r.width_multiple, Reason::kHiddenSize);
  if (!r.pads_intermediate) {
    c.multiple_of(intermediate_per_rank(s, d), r.intermediate_multiple, Reason::kIntermediateSize);
  }
  if (s.latent != 0 && !r.latent) c.want(false, Reason::kLatentSize, text(s.latent), "none");
}

// What of `asked` is not in `has`, by name.
void want_bits(Check& c, std::uint32_t asked, std::uint32_t has, Reason code,
               std::initializer_list<std::string_view> names) {
  if ((asked & ~has) == 0) return;
  std::string got, wanted;
  std::uint32_t b = 1;
  for (const std::string_view name : names) {
    if ((asked & ~has & b) != 0) append(got, name);
    if ((has & b) != 0) append(wanted, name);
    b <<= 1;
  }
  c.want(false, code, got, wanted.empty() ? "none" : wanted);
}

void check_adapters(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  const AdapterDemand& a = d.adapters;
  if (!a.any()) return;  // adapters that leave the experts alone ask nothing of this layer
  if (!r.adapters) {
    c.want(false, Reason::kAdapters, text("up to ", a.max_adapters), "none");
    return;
  }
  c.at_most(a.max_rank, r.max_rank, Reason::kAdapterRank);
  c.at_most(a.max_adapters, r.max_adapters, Reason::kAdapterCount);
  want_bits(c, a.layouts, r.adapter_layouts, Reason::kAdapterLayout,
            {"per expert", "shared A of gate and up", "shared outer factors"});
  want_bits(c, a.projections, r.adapter_projections, Reason::kAdapterProjection, {"gate", "up", "down"});
  c.want(!a.fully_sharded || r.fully_sharded_adapters, Reason::kAdapterSharding, "A and B split",
         "one of the two repeated on each rank");
  c.want(!s.router_weight_on_input || r.adapters_with_input_weight, Reason::kAdapters,
         "some, with the router weight on the expert's input", "one of the two");
  if ((r.adapter_expert_parallel & bit(d.expert_parallel_kind)) == 0) {
    const std::uint32_t both = r.adapter_expert_parallel & r.expert_parallel & ~bit(ExpertParallelKind::kNone);
    c.want(false, Reason::kAdapters, text("some, with expert parallelism by ", to_string(d.expert_parallel_kind)),
           both == 0 ? "no expert parallelism" : "expert parallelism by " + list<ExpertParallelKind>(both));
  }
}

void check_promises(Check& c, const MoeRecord& r, const Deployment& d) {
  c.want(!d.need_repeatable || r.repeatable, Reason::kNotRepeatable, "required", "not required");
  c.want(!d.need_adapter_isolation || r.adapter_isolation || !d.adapters.any(), Reason::kNotIsolated, "required",
         "not required");
  if (d.need_batch_invariance && !r.batch_invariant) {
    c.want(false, Reason::kNotBatchInvariant, "required (--batch-invariant)", "not required");
  } else if (d.need_batch_invariance && d.adapters.any() && !r.invariant_with_adapters) {
    c.want(false, Reason::kNotBatchInvariant, "required (--batch-invariant), with adapters", "not required");
  }
  c.want(!d.graph_capture || r.graph_capture, Reason::kGraphCapture, "required", "not required");
}

void check_deployment(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  c.at_most(d.tensor_parallel, r.max_tensor_parallel, Reason::kTensorParallel);
  c.in_set(r.expert_parallel, d.expert_parallel_kind, Reason::kExpertParallel);
  c.at_most(d.data_parallel, r.max_data_parallel, Reason::kDataParallel);
  c.want(!d.sequence_parallel || r.sequence_parallel, Reason::kSequenceParallel, "rows split over the ranks",
         "all rows on every rank");
  if ((d.rebalance_experts || d.redundant_experts > 0) && !r.rebalanced_experts) {
    c.want(false, Reason::kExpertRebalancing,
           d.redundant_experts > 0 ? text(d.redundant_experts, " copies of experts") : "required", "none");
  }
  c.in_set(r.formats, d.format, Reason::kActivationFormat);
  check_promises(c, r, d);
  if (d.workspace_limit > 0 && r.workspace != nullptr) {
    const std::int64_t bytes = r.workspace(s, d);
    if (bytes > d.workspace_limit) {
      c.want(false, Reason::kWorkspace, text(bytes, " bytes"), text("at most ", d.workspace_limit, " bytes"));
    }
  }
}

}  // namespace

std::vector<Refusal> check_record(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment) {
  Check c;
  check_device(c, record, deployment);
  check_mathematics(c, record, spec, deployment);
  check_sizes(c, record, spec, deployment);
  check_adapters(c, record, spec, deployment);
  check_deployment(c, record, spec, deployment);
  return c.take();
}

std::int64_t padded_intermediate(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment) {
  const std::int64_t size = intermediate_per_rank(spec, deployment);
  if (!record.pads_intermediate) return size;
  return (size + record.intermediate_multiple - 1) / record.intermediate_multiple * record.intermediate_multiple;
}

std::vector<std::string> padding_remedies(const MoeRecord& record, const LayerSpec& spec,
                                          const Deployment& deployment) {
  const std::int64_t size = intermediate_per_rank(spec, deployment);
  const std::int64_t padded = padded_intermediate(record, spec, deployment);
  if (padded == size) return {};
  char factor[32];
  std::snprintf(factor, sizeof factor, "%.2fx", static_cast<double>(padded) / static_cast<double>(size));
  return {text("pads the intermediate size on each rank from ", size, " to ", padded, ": ", factor,
               " the weights and operations")};
}

}  // namespace cadre
