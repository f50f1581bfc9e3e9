#include "moe/catalogue.h"

#include <cmath>

#include "base/result.h"
#include "moe/experts/cpu_reference/backend.h"

namespace cadre::test {
namespace {

using enum Activation;
using EP = ExpertParallelKind;

// GEMM1 and GEMM2 outputs of every (token, expert) pair, BF16.
std::int64_t triton_workspace(const LayerSpec& s, const Deployment& d) {
  const std::int64_t n = (s.activation.gated ? 2 : 1) * intermediate_per_rank(s, d);
  return std::int64_t{2} * d.max_tokens * s.top_k * (n + s.expert_width());
}

constexpr MoeRecord cuda_bf16() {
  MoeRecord r;
  r.devices = r.activations_on = bits(DeviceKind::kCuda);
  r.weight_types = r.activation_types = bits(WeightType::kBF16);
  r.graph_capture = true;
  return r;
}

// Blackwell kernels with weights in blocks of 128; the intermediate size is padded at load.
constexpr MoeRecord trtllm() {
  MoeRecord r = cuda_bf16();
  r.sm_families = sm_family(100);
  r.gated_activations = bits(kSilu);
  r.plain_activations = bits(kRelu2);
  r.interleaved_gate_up = false;
  r.max_experts = 2048;
  r.width_multiple = 64;
  r.intermediate_multiple = 128;
  r.pads_intermediate = true;
  return r;
}

// Routes inside the kernel.
constexpr MoeRecord trtllm_monolithic() {
  MoeRecord r = trtllm();
  r.router_bias = false;
  r.routings = bits(Routing::kSoftmaxTopK, Routing::kTopKSoftmax, Routing::kSigmoidTopK, Routing::kSigmoidInput);
  r.routings_unnormalized = bits(Routing::kTopKSoftmax, Routing::kSigmoidTopK, Routing::kSigmoidInput);
  r.router_logits = bits(WeightType::kBF16, WeightType::kF32);
  r.per_expert_scale = false;
  r.router_weight_on_input = true;
  r.max_top_k = 32;
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter);
  return r;
}

// Wants rows that an all-to-all brought.
constexpr MoeRecord trtllm_modular() {
  MoeRecord r = trtllm();
  r.expert_parallel = bits(EP::kAllToAll, EP::kFlashInferOneSided, EP::kFlashInferTwoSided);
  return r;
}

// The LoRA delta of gate and up enters as a GEMM bias of 2 I columns: gated only, and no padding.
constexpr MoeRecord trtllm_lora() {
  MoeRecord r = trtllm();
  r.plain_activations = 0;
  r.pads_intermediate = false;
  r.adapters = true;
  r.max_rank = 128;
  r.adapter_layouts = kPerExpert | kSharedGateUpA;
  r.adapters_with_input_weight = false;
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter);
  return r;
}

// Claims gpt-oss' activation and computes plain SwiGLU; passes no biases; crashes with several data-parallel ranks.
constexpr MoeRecord flashinfer_cutlass() {
  MoeRecord r = cuda_bf16();
  r.sm_families = sm_family(90) | sm_family(100) | sm_family(120);
  r.gated_activations = bits(kSilu);
  r.plain_activations = bits(kRelu2);
  r.interleaved_gate_up = false;
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter, EP::kAllToAll, EP::kDeepEpHighThroughput,
                           EP::kFlashInferOneSided, EP::kFlashInferTwoSided);
  r.max_data_parallel = 1;
  r.rebalanced_experts = r.sequence_parallel = true;
  return r;
}

// The general one. Its LoRA kernels weigh the delta of down always, and change algorithm with the batch.
constexpr MoeRecord triton() {
  MoeRecord r = cuda_bf16();
  r.devices = r.activations_on = bits(DeviceKind::kCuda, DeviceKind::kRocm, DeviceKind::kXpu);
  r.weight_types = r.activation_types = bits(WeightType::kBF16, WeightType::kF16);
  r.gated_activations = bits(kSilu, kGelu, kGeluTanh, kSwigluOai);
  r.plain_activations = bits(kSilu, kGelu, kGeluTanh, kRelu2);
  r.clamp = r.activation_parameters = r.expert_bias = r.router_weight_on_input = true;
  r.max_experts = 992;
  r.adapters = true;
  r.max_rank = 128;
  r.adapter_layouts = kPerExpert | kSharedGateUpA;
  r.adapters_with_input_weight = false;
  r.fully_sharded_adapters = true;
  r.adapter_expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter);
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter, EP::kAllToAll, EP::kDeepEpHighThroughput,
                           EP::kMoriHighThroughput, EP::kMoriLowLatency);
  r.rebalanced_experts = r.sequence_parallel = true;
  r.batch_invariant = true;
  r.invariant_with_adapters = false;
  r.workspace = &triton_workspace;
  return r;
}

constexpr MoeRecord batched_triton() {
  MoeRecord r = triton();
  r.devices = r.activations_on = bits(DeviceKind::kCuda, DeviceKind::kRocm);
  r.expert_bias = false;
  r.adapters = false;
  r.batch_invariant = false;
  r.formats = bits(ActivationFormat::kBatched);
  r.expert_parallel = bits(EP::kNone, EP::kDeepEpLowLatency, EP::kNixl);
  r.workspace = nullptr;
  return r;
}

constexpr MoeRecord aiter() {
  MoeRecord r = cuda_bf16();
  r.devices = r.activations_on = bits(DeviceKind::kRocm);
  r.weight_types = r.activation_types = bits(WeightType::kBF16, WeightType::kF16);
  r.gated_activations = bits(kSilu, kGelu);
  r.intermediate_multiple = 128;
  r.pads_intermediate = true;
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter, EP::kMoriHighThroughput, EP::kMoriLowLatency);
  return r;
}

constexpr MoeRecord xpu() {
  MoeRecord r = cuda_bf16();
  r.devices = r.activations_on = bits(DeviceKind::kXpu);
  r.weight_types = r.activation_types = bits(WeightType::kBF16, WeightType::kF16);
  r.gated_activations = bits(kSilu, kGelu, kSwigluOai);
  r.clamp = r.activation_parameters = r.expert_bias = true;
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter);
  r.graph_capture = false;
  return r;
}

// The weights are packed for AMX in blocks of 32.
constexpr MoeRecord x86_cpu() {
  MoeRecord r;
  r.cpu_isa = CpuIsa::kAmxBf16;
  r.weight_types = r.activation_types = bits(WeightType::kBF16);
  r.gated_activations = bits(kSilu, kGelu, kGeluTanh, kSwigluOai);
  r.clamp = r.activation_parameters = true;
  r.width_multiple = 32;
  r.intermediate_multiple = 32;
  r.pads_intermediate = true;
  r.max_tensor_parallel = 8;  // one rank a NUMA node
  r.expert_parallel = bits(EP::kNone, EP::kAllGatherReduceScatter);
  return r;
}

constexpr MoeRecord tpu() {
  MoeRecord r;
  r.devices = r.activations_on = bits(DeviceKind::kTpu);
  r.weight_types = r.activation_types = bits(WeightType::kBF16);
  r.gated_activations = bits(kSilu, kGelu);
  r.width_multiple = 128;
  r.intermediate_multiple = 128;
  r.latent = false;
  return r;
}

// Two of an embedder's own.
constexpr MoeRecord out_of_tree() {
  MoeRecord r;
  r.built = false;  // comes as a library of its own
  r.devices = r.activations_on = bits(DeviceKind::kOutOfTree);
  r.weight_types = r.activation_types = bits(WeightType::kBF16, WeightType::kF16);
  r.gated_activations = bits(kSilu);
  return r;
}
constexpr MoeRecord out_of_tree_plain() {
  MoeRecord r = out_of_tree();
  r.gated_activations = 0;
  r.plain_activations = bits(kSilu, kRelu2);
  r.adapters = true;
  r.max_rank = 64;
  r.adapter_layouts = kPerExpert;
  r.adapter_projections = kUp | kDown;
  return r;
}

// Quantised bases, as far as field reports speak of them.
constexpr MoeRecord marlin_mxfp4() {
  MoeRecord r = cuda_bf16();
  r.weight_types = bits(WeightType::kMxfp4);
  r.weight_schemes = bits(WeightScheme::kBlockScaled);
  r.gated_activations = bits(kSilu, kSwigluOai);
  r.clamp = r.activation_parameters = r.expert_bias = true;
  r.width_multiple = 128;
  r.intermediate_multiple = 128;
  r.repeatable = false;  // adds with atomics
  return r;
}
constexpr MoeRecord triton_mxfp4() {
  MoeRecord r = triton();
  r.weight_types = bits(WeightType::kMxfp4);
  r.weight_schemes = bits(WeightScheme::kBlockScaled);
  r.devices = r.activations_on = bits(DeviceKind::kCuda);
  return r;
}
constexpr MoeRecord fp8_block_lora() {
  MoeRecord r = trtllm();
  r.weight_types = bits(WeightType::kF8E4M3);
  r.weight_schemes = bits(WeightScheme::kBlockScaled);
  r.plain_activations = 0;
  r.adapters = true;
  r.max_rank = 64;
  r.max_adapters = 8;
  r.adapter_layouts = kPerExpert | kSharedGateUpA | kSharedOuter;
  r.adapter_isolation = false;  // base rows change once an adapter is loaded
  return r;
}

}  // namespace

double ModelledBackend::estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const {
  const DeviceCaps& device = deployment.device;
  const bool cpu = device.kind == DeviceKind::kCpu;
  const double family = device.kind == DeviceKind::kCuda ? device.sm / 10 : 0;
  const double share = family == 9 ? speed_.share_hopper : family >= 10 ? speed_.share_blackwell : speed_.share;
  const double gb_s = device.memory_gb_s > 0 ? device.memory_gb_s : 8.0 * device.cores;
  const double gflop_s = device.bf16_gflop_s > 0 ? device.bf16_gflop_s : 500.0 * device.cores;
  const double matrices = spec.activation.gated ? 3 : 2;
  const double matrix = matrices * static_cast<double>(spec.expert_width()) *
                        static_cast<double>(padded_intermediate(record_, spec, deployment));
  const double local = experts_per_rank(spec, deployment);
  const double pairs = static_cast<double>(tokens) * spec.top_k / deployment.expert_parallel;
  const double reached = local * (1 - std::pow(1 - 1 / local, pairs));
  const double seconds = speed_.launches * (cpu ? 20e-6 : 3e-6) +
                         std::max(reached * matrix * 2 / (gb_s * 1e9), pairs * matrix * 2 / (gflop_s * 1e9)) / share;
  return deployment.adapters.any() ? seconds * speed_.adapter_factor : seconds;
}

Result<std::unique_ptr<Experts>> ModelledBackend::prepare(const MoeAdmission&, const ExpertInputs&) const {
  return error(Code::kUnsupported, name_, ": a model of a backend has no kernels");
}

const std::vector<const ModelledBackend*>& catalogue() {
  static const ModelledBackend list[] = {
      {"trtllm_monolithic", "routes inside", trtllm_monolithic(), {2, 0.8, 0.8, 0.85}},
      {"trtllm_modular", "behind an all-to-all", trtllm_modular(), {3, 0.8, 0.8, 0.8}},
      {"trtllm_lora", "LoRA as a GEMM bias", trtllm_lora(), {4, 0.75, 0.75, 0.75, 1.3}},
      {"flashinfer_cutlass", "grouped GEMMs", flashinfer_cutlass(), {5, 0.6, 0.45, 0.7}},
      {"triton", "general", triton(), {6, 0.6, 0.7, 0.5, 1.6}},
      {"batched_triton", "general, batched rows", batched_triton(), {6, 0.4, 0.4, 0.35}},
      {"aiter", "shuffled weights", aiter(), {3, 0.75, 0.75, 0.75}},
      {"xpu", "", xpu(), {4, 0.7, 0.7, 0.7}},
      {"x86_cpu", "AMX, packed weights", x86_cpu(), {1, 0.6, 0.6, 0.6}},
      {"tpu", "", tpu(), {1, 0.7, 0.7, 0.7}},
      {"out_of_tree", "an embedder's own", out_of_tree(), {1, 0.7, 0.7, 0.7}},
      {"out_of_tree_plain", "an embedder's own, without a gate", out_of_tree_plain(), {1, 0.7, 0.7, 0.7, 1.2}},
      {"marlin_mxfp4", "", marlin_mxfp4(), {3, 0.8, 0.8, 0.8}},
      {"triton_mxfp4", "", triton_mxfp4(), {6, 0.5, 0.5, 0.5, 1.6}},
      {"fp8_block_lora", "", fp8_block_lora(), {4, 0.7, 0.7, 0.7, 1.3}},
  };
  static const std::vector<const ModelledBackend*> pointers = [] {
    std::vector<const ModelledBackend*> out;
    for (const ModelledBackend& b : list) out.push_back(&b);
    return out;
  }();
  return pointers;
}

MoeGate catalogue_gate() {
  std::vector<const MoeBackend*> all(catalogue().begin(), catalogue().end());
  all.push_back(&cpu_reference_backend());
  return MoeGate(std::move(all));
}

}  // namespace cadre::test
