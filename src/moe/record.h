// A backend's capability record: plain data that says what its compiled kernels can run, and the one function that
// compares it with a spec and a deployment. The table that dispatches a kernel is built from the same data, so a
// record cannot promise what was not compiled. Host-only: every build can plan for every machine.
#pragma once

#include <cadre/selection.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace cadre {

// Sets of enum values, as bits.
template <class E>
constexpr std::uint32_t bit(E value) {
  return std::uint32_t{1} << static_cast<unsigned>(value);
}
template <class... E>
constexpr std::uint32_t bits(E... values) {
  return (bit(values) | ... | 0u);
}
inline constexpr std::uint32_t kAnySet = ~std::uint32_t{0};
inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

enum class CpuIsa : std::uint8_t { kAny, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };

struct MoeRecord {
  // Where it runs.
  bool built = true;                               // compiled into this binary
  std::uint32_t devices = bits(DeviceKind::kCpu);  // DeviceKind
  CpuIsa cpu_isa = CpuIsa::kAny;
  std::uint32_t sm_families = kAnySet;                    // bit of sm / 10, GPUs only; see sm_family
  std::uint32_t activations_on = bits(DeviceKind::kCpu);  // DeviceKind
  // Numbers.
  std::uint32_t weight_types = 0;  // WeightType
  std::uint32_t weight_schemes = bits(WeightScheme::kPlain);
  std::uint32_t activation_types = 0;  // WeightType
  // Mathematics.
  std::uint32_t gated_activations = 0;  // Activation, act(gate) * up
  std::uint32_t plain_activations = 0;  // Activation, act(up)
  bool clamp = false;                   // applies ActivationSpec::limit
  bool activation_parameters = false;   // applies alpha and beta
  bool expert_bias = false;
  bool router_bias = true;           // false only where the kernel routes inside
  std::uint32_t routings = kAnySet;  // Routing; narrower only where the kernel routes inside
  bool selection_bias = true, groups = true, per_expert_scale = true;  // likewise
  bool router_weight_on_input = false;
  bool interleaved_gate_up = true;  // false where weights are used as the file stores them
  // Sizes.
  std::int64_t max_experts = kNoLimit;  // on one rank
  std::int64_t max_top_k = kNoLimit;
  std::int64_t width_multiple = 1, max_width = kNoLimit;
  std::int64_t intermediate_multiple = 1;  // on one rank
  bool pads_intermediate = false;          // pads up to the multiple itself
  bool latent = true;
  // Adapters.
  bool adapters = false;
  std::int64_t max_rank = 0, max_adapters = kNoLimit;
  std::uint32_t adapter_layouts = 0;  // AdapterLayout bits
  std::uint32_t adapter_projections = kGate | kUp | kDown;
  // Deployment.
  std::int64_t max_tensor_parallel = kNoLimit;
  std::uint32_t expert_parallel = bits(ExpertParallelKind::kNone);
  bool adapters_with_expert_parallel = true;
  std::uint32_t formats = bits(ActivationFormat::kStandard);
  // Promises.
  bool repeatable = true, adapter_isolation = true, batch_invariant = false;
  bool graph_capture = false;
  // Workspace bytes of the largest call; null: none to speak of.
  std::int64_t (*workspace)(const LayerSpec&, const Deployment&) = nullptr;
};

// Every constraint of the record that the spec or the deployment breaks. `runs_here`: whether this machine is one the
// record names; asked only where the deployment is not a described one.
std::vector<Refusal> check_record(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment);

std::string_view to_string(Activation a);
std::string_view to_string(Routing r);
std::string_view to_string(WeightType t);
std::string_view to_string(WeightScheme s);
std::string_view to_string(DeviceKind k);
std::string_view to_string(ActivationFormat f);
std::string_view to_string(ExpertParallelKind k);
std::string_view to_string(CpuIsa isa);

}  // namespace cadre
