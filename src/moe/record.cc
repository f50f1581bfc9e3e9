#include "moe/record.h"

#include <sstream>

#include "moe/experts.h"

namespace cadre {
namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// "silu, relu2" for a set over an enum's first `count` values.
template <class E>
std::string list(std::uint32_t set, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    const E value = static_cast<E>(i);
    if ((set & bit(value)) != 0) out += (out.empty() ? "" : ", ") + std::string(to_string(value));
  }
  return out.empty() ? "none" : out;
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
  template <class E>
  void in_set(std::uint32_t set, E value, int count, Reason code) {
    if ((set & bit(value)) == 0) want(false, code, std::string(to_string(value)), list<E>(set, count));
  }
  void at_most(std::int64_t value, std::int64_t limit, Reason code) {
    if (value > limit) want(false, code, text(value), text("at most ", limit));
  }
  std::vector<Refusal> take() { return std::move(refusals_); }

 private:
  std::vector<Refusal> refusals_;
};

void check_device(Check& c, const MoeRecord& r, const Deployment& d) {
  c.want(r.built, Reason::kNotInThisBuild, "built without it", "a build that has it");
  c.in_set(r.devices, d.device.kind, 6, Reason::kDeviceKind);
  c.in_set(r.activations_on, d.activations_on, 6, Reason::kActivationsElsewhere);
  if (d.device.kind == DeviceKind::kCpu && !has_isa(d.device, r.cpu_isa)) {
    c.want(false, Reason::kInstructionSet, d.device.name + " without it", std::string(to_string(r.cpu_isa)));
  }
  if (d.device.kind == DeviceKind::kCuda && (r.sm_families & (1u << (d.device.sm / 10 % 32))) == 0) {
    std::string families;
    for (int f = 0; f < 32; ++f) {
      if ((r.sm_families >> f & 1u) != 0) families += (families.empty() ? "" : ", ") + text("sm_", f, "x");
    }
    c.want(false, Reason::kComputeCapability, text("sm_", d.device.sm), families);
  }
}

void check_mathematics(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  c.in_set(r.weight_types, s.weights.type, 5, Reason::kWeightType);
  c.in_set(r.weight_schemes, s.weights.scheme, 2, Reason::kWeightScheme);
  c.in_set(r.activation_types, d.activation_type, 5, Reason::kActivationType);
  const ActivationSpec& a = s.activation;
  const std::uint32_t mine = a.gated ? r.gated_activations : r.plain_activations;
  if (mine == 0) {
    c.want(false, a.gated ? Reason::kGated : Reason::kNotGated, a.gated ? "act(gate) * up" : "act(up) without a gate",
           a.gated ? "act(up) without a gate" : "act(gate) * up");
  } else {
    c.in_set(mine, a.kind, 5, Reason::kActivation);
  }
  const bool clamped = a.limit != std::numeric_limits<float>::infinity();
  c.want(!clamped || r.clamp, Reason::kActivationClamp, text("a clamp at ", a.limit), "no clamp");
  c.want((a.alpha == 1.0f && a.beta == 0.0f) || r.activation_parameters, Reason::kActivationParameters,
         text("alpha ", a.alpha, ", beta ", a.beta), "alpha 1, beta 0");
  c.want(!s.expert_bias || r.expert_bias, Reason::kExpertBias, "expert biases", "no biases");
  c.want(!s.router_bias || r.router_bias, Reason::kRouterBias, "a router bias", "no bias");
  c.in_set(r.routings, s.routing.kind, 5, Reason::kRouting);
  c.want(!s.routing.selection_bias || r.selection_bias, Reason::kRouting, "a selection bias", "no selection bias");
  c.want(s.routing.groups <= 1 || r.groups, Reason::kRouting, text(s.routing.groups, " groups"), "no groups");
  c.want(!s.routing.per_expert_scale || r.per_expert_scale, Reason::kRouting, "a scale for each expert", "none");
  c.want(!s.router_weight_on_input || r.router_weight_on_input, Reason::kRouterWeightOnInput, "on the expert's input",
         "on the expert's output");
  c.want(!s.interleaved_gate_up || r.interleaved_gate_up, Reason::kInterleavedGateUp, "interleaved", "gate, then up");
}

void check_sizes(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  c.at_most(experts_per_rank(s, d), r.max_experts, Reason::kTooManyExperts);
  c.at_most(s.top_k, r.max_top_k, Reason::kTopK);
  const std::int64_t width = s.expert_width();
  c.at_most(width, r.max_width, Reason::kHiddenSize);
  c.want(width % r.width_multiple == 0, Reason::kHiddenSize, text(width), text("a multiple of ", r.width_multiple));
  const std::int64_t intermediate = intermediate_per_rank(s, d);
  c.want(intermediate % r.intermediate_multiple == 0 || r.pads_intermediate, Reason::kIntermediateSize,
         text(intermediate), text("a multiple of ", r.intermediate_multiple));
  c.want(s.latent == 0 || r.latent, Reason::kLatentSize, text(s.latent), "none");
}

void check_adapters(Check& c, const MoeRecord& r, const Deployment& d) {
  const AdapterDemand& a = d.adapters;
  if (!a.any()) return;  // adapters that leave the experts alone ask nothing of this layer
  if (!r.adapters) {
    c.want(false, Reason::kAdapters, text(a.max_adapters, " adapters"), "none");
    return;
  }
  c.at_most(a.max_rank, r.max_rank, Reason::kAdapterRank);
  c.at_most(a.max_adapters, r.max_adapters, Reason::kAdapterCount);
  const auto extra = [&](std::uint32_t asked, std::uint32_t has, Reason code,
                         std::initializer_list<const char*> names) {
    std::string got;
    std::uint32_t b = 1;
    for (const char* name : names) {
      if ((asked & ~has & b) != 0) got += (got.empty() ? "" : ", ") + std::string(name);
      b <<= 1;
    }
    std::string wanted;
    b = 1;
    for (const char* name : names) {
      if ((has & b) != 0) wanted += (wanted.empty() ? "" : ", ") + std::string(name);
      b <<= 1;
    }
    c.want(got.empty(), code, got, wanted.empty() ? "none" : wanted);
  };
  extra(a.layouts, r.adapter_layouts, Reason::kAdapterLayout, {"per expert", "shared gate/up A", "shared outer"});
  extra(a.projections, r.adapter_projections, Reason::kAdapterProjection, {"gate", "up", "down"});
  if (d.expert_parallel > 1 && !r.adapters_with_expert_parallel) {
    c.want(false, Reason::kAdapters, "adapters with expert parallelism", "one of the two");
  }
}

void check_deployment(Check& c, const MoeRecord& r, const LayerSpec& s, const Deployment& d) {
  c.at_most(d.tensor_parallel, r.max_tensor_parallel, Reason::kTensorParallel);
  c.in_set(r.expert_parallel, d.expert_parallel_kind, 3, Reason::kExpertParallel);
  c.in_set(r.formats, d.format, 2, Reason::kActivationFormat);
  c.want(!d.need_repeatable || r.repeatable, Reason::kNotRepeatable, "asked for", "not asked for");
  c.want(!d.need_adapter_isolation || r.adapter_isolation, Reason::kNotIsolated, "asked for", "not asked for");
  c.want(!d.need_batch_invariance || r.batch_invariant, Reason::kNotBatchInvariant, "asked for (--batch-invariant)",
         "not asked for");
  c.want(!d.graph_capture || r.graph_capture, Reason::kGraphCapture, "asked for", "not asked for");
  if (d.workspace_limit > 0 && r.workspace != nullptr) {
    const std::int64_t bytes = r.workspace(s, d);
    c.want(bytes <= d.workspace_limit, Reason::kWorkspace, text(bytes, " bytes"), text("at most ", d.workspace_limit));
  }
}

}  // namespace

std::vector<Refusal> check_record(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment) {
  Check c;
  check_device(c, record, deployment);
  check_mathematics(c, record, spec, deployment);
  check_sizes(c, record, spec, deployment);
  check_adapters(c, record, deployment);
  check_deployment(c, record, spec, deployment);
  return c.take();
}

}  // namespace cadre
