// A backend's capability record: plain data that says what its compiled kernels can run, and the one function that
// compares it with a spec and a deployment. The table that dispatches a kernel is built from the same data, so a
// record cannot promise what was not compiled. Host-only: every build can plan for every machine.
#pragma once

#include <cadre/selection.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace cadre {

// How many enumerators an enum has.
template <class E>
inline constexpr int kCountOf = 0;
template <>
inline constexpr int kCountOf<Activation> = static_cast<int>(Activation::kSwigluOai) + 1;
template <>
inline constexpr int kCountOf<Routing> = static_cast<int>(Routing::kSigmoidInput) + 1;
template <>
inline constexpr int kCountOf<WeightType> = static_cast<int>(WeightType::kMxfp4) + 1;
template <>
inline constexpr int kCountOf<WeightScheme> = static_cast<int>(WeightScheme::kBlockScaled) + 1;
template <>
inline constexpr int kCountOf<DeviceKind> = static_cast<int>(DeviceKind::kOutOfTree) + 1;
template <>
inline constexpr int kCountOf<ActivationFormat> = static_cast<int>(ActivationFormat::kBatched) + 1;
template <>
inline constexpr int kCountOf<ExpertParallelKind> = static_cast<int>(ExpertParallelKind::kMoriLowLatency) + 1;

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
template <>
inline constexpr int kCountOf<CpuIsa> = static_cast<int>(CpuIsa::kAmxBf16) + 1;

// The bit of a GPU's family in MoeRecord::sm_families: sm_90 is family 9, sm_100 and sm_103 are family 10.
constexpr std::uint32_t sm_family(int sm) { return sm >= 0 && sm < 320 ? std::uint32_t{1} << (sm / 10) : 0; }

struct MoeRecord {
  // Where it runs.
  bool built = true;                               // compiled into this binary
  std::uint32_t devices = bits(DeviceKind::kCpu);  // DeviceKind
  CpuIsa cpu_isa = CpuIsa::kAny;
  std::uint32_t sm_families = kAnySet;                    // sm_family bits, CUDA only
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
  bool router_bias = true;                        // false only where the kernel routes inside
  std::uint32_t routings = kAnySet;               // Routing; narrower only where the kernel routes inside
  std::uint32_t routings_unnormalized = kAnySet;  // those it can do without `renormalize`; likewise
  std::uint32_t router_logits = kAnySet;          // WeightType; likewise
  bool selection_bias = true, groups = true, per_expert_scale = true;  // likewise
  bool router_weight_on_input = false;
  bool interleaved_gate_up = true;  // false where weights are used as the file stores them
  // Sizes.
  std::int64_t max_experts = kNoLimit;  // on one rank, copies included
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
  bool adapters_with_input_weight = true;  // false where the delta of down would be weighted twice
  bool fully_sharded_adapters = false;
  std::uint32_t adapter_expert_parallel = kAnySet;  // ExpertParallelKind with which adapters work
  // Deployment.
  std::int64_t max_tensor_parallel = kNoLimit;
  std::uint32_t expert_parallel = bits(ExpertParallelKind::kNone);
  std::int64_t max_data_parallel = kNoLimit;
  bool sequence_parallel = false;
  bool rebalanced_experts = false;  // experts that have copies or move
  std::uint32_t formats = bits(ActivationFormat::kStandard);
  // Promises.
  bool repeatable = true, adapter_isolation = true, batch_invariant = false;
  bool invariant_with_adapters = true;  // the promise above holds for rows with adapters too
  bool graph_capture = false;
  // Workspace bytes of the largest call; null: none to speak of.
  std::int64_t (*workspace)(const LayerSpec&, const Deployment&) = nullptr;
};

// Every constraint of the record that the spec or the deployment breaks. Both have passed `validate`.
std::vector<Refusal> check_record(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment);

// The intermediate size on each rank as the backend's weights have it: rounded up where the record pads.
std::int64_t padded_intermediate(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment);
// "pads the intermediate size on each rank from 192 to 256: 1.33x the weights and operations", where it does.
std::vector<std::string> padding_remedies(const MoeRecord& record, const LayerSpec& spec, const Deployment& deployment);

std::string_view to_string(CpuIsa isa);

}  // namespace cadre
