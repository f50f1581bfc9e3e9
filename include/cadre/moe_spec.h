// LayerSpec: what a model asks of one MoE layer. Deployment: where and how it runs. Together they are all that the gate
// looks at. Plain data, comparable, hashable and printable, and fixed once a model is built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <cadre/status.h>

namespace cadre {

// ---- activation -------------------------------------------------------------------------------------------------

enum class Activation : std::uint8_t {
  kSilu,       // x * sigmoid(x)
  kGelu,       // exact, with erf
  kGeluTanh,   // tanh approximation
  kRelu2,      // max(x, 0)^2
  kSwigluOai,  // gpt-oss: g = min(gate, limit), u = clamp(up, -limit, limit): g * sigmoid(alpha * g) * (u + beta)
};

// Gated: act(gate) * up, with the clamp, where there is one, on both before the activation. Otherwise act(up). Clamped
// SwiGLU under another name (swiglustep) is kSilu with a limit; gpt-oss' own stores gate and up interleaved, its
// descendants do not, which LayerSpec::interleaved_gate_up says.
struct ActivationSpec {
  Activation kind = Activation::kSilu;
  bool gated = true;
  float alpha = 1.0f;                                    // kSwigluOai only
  float beta = 0.0f;                                     // kSwigluOai only
  float limit = std::numeric_limits<float>::infinity();  // no clamp
  bool operator==(const ActivationSpec&) const = default;
};

// ---- routing ----------------------------------------------------------------------------------------------------

// How router logits z [experts] become expert ids and weights. The classes differ in mathematics, not in speed:
enum class Routing : std::uint8_t {
  kSoftmaxTopK,   // p = softmax(z) over all experts; ids = topk(p); w = p[ids], renormalised or not
  kTopKSoftmax,   // ids = topk(z); w = softmax(z[ids])
  kSigmoidTopK,   // s = sigmoid(z); ids = topk(s + bias); w = s[ids], without the bias, renormalised or not
  kSparseMixer,   // Phi-3.5: two passes of masked softmax, top-2
  kSigmoidInput,  // Llama 4: ids = topk(z); w = sigmoid(z[ids]), applied to the expert's input
};

enum class WeightType : std::uint8_t { kBF16, kF16, kF32, kF8E4M3, kMxfp4 };
enum class WeightScheme : std::uint8_t { kPlain, kBlockScaled };

struct RoutingSpec {
  Routing kind = Routing::kSoftmaxTopK;
  bool renormalize = false;       // w /= sum(w)
  float sum_epsilon = 0.0f;       // added to that sum: LFM2's 1e-6
  float scale = 1.0f;             // routed_scaling_factor, applied last, with or without renormalisation
  bool selection_bias = false;    // e_score_correction_bias: moves the choice, never the weight
  bool per_expert_scale = false;  // Gemma 4: w *= scale[expert]
  int groups = 1;                 // n_group; 1: no grouping
  int topk_groups = 1;            // groups kept
  // What the logits are handed over as. Only a kernel that routes inside cares: it may read one type as another.
  WeightType logits = WeightType::kF32;
  bool operator==(const RoutingSpec&) const = default;
};

// ---- layer ------------------------------------------------------------------------------------------------------

struct WeightFormat {
  WeightType type = WeightType::kBF16;
  WeightScheme scheme = WeightScheme::kPlain;
  int block = 0;  // edge of a scaled block, 0 where plain
  bool operator==(const WeightFormat&) const = default;
};

struct LayerSpec {
  int experts = 0;  // routed experts of the whole model layer
  int top_k = 0;
  std::int64_t hidden = 0;        // width of the residual stream
  std::int64_t intermediate = 0;  // of one expert, before any split over ranks
  std::int64_t latent = 0;        // width the experts see instead of `hidden`; 0: none
  ActivationSpec activation;
  RoutingSpec routing;
  WeightFormat weights;
  bool expert_bias = false;             // biases on gate/up/down
  bool router_bias = false;             // bias added to the router logits
  bool interleaved_gate_up = false;     // the file stores gate and up in alternating rows
  bool router_weight_on_input = false;  // Llama 4: experts see weight * x, the sum is plain
  int shared_experts = 0;
  std::int64_t shared_intermediate = 0;  // of all shared experts together

  // What an expert reads and writes: latent where there is one, otherwise hidden.
  std::int64_t expert_width() const { return latent > 0 ? latent : hidden; }
  bool operator==(const LayerSpec&) const = default;
};

// ---- deployment -------------------------------------------------------------------------------------------------

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kRocm, kXpu, kTpu, kOutOfTree };

struct DeviceCaps {
  std::string name = "cpu";  // as --device takes it
  DeviceKind kind = DeviceKind::kCpu;
  // CPU: what the processor has and the operating system allows.
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  int cores = 1;
  // GPU: compute capability as 10 * major + minor (90 for H100); its family is the major version. And memory limits.
  int sm = 0;
  std::int64_t shared_memory_per_block = 0;
  // For the cost model; 0 takes the built-in value for this kind of device.
  double memory_gb_s = 0;
  double bf16_gflop_s = 0;
  std::int64_t memory_bytes = 0;
  bool described = false;  // a description of another machine, not what this process runs on
  bool operator==(const DeviceCaps&) const = default;
};

enum class ActivationFormat : std::uint8_t {
  kStandard,  // [tokens, hidden]
  kBatched,   // [local experts, max tokens for an expert, hidden], as low-latency expert-parallel dispatch makes it
};

// How rows reach the ranks that hold their experts. The libraries differ in what they hand to the kernels, so a kernel
// may work behind one and not behind another.
enum class ExpertParallelKind : std::uint8_t {
  kNone,
  kAllGatherReduceScatter,
  kAllToAll,  // our own, over Communicator::all_to_all_v
  kDeepEpHighThroughput,
  kDeepEpLowLatency,  // hands over batched rows
  kNixl,              // hands over batched rows
  kFlashInferOneSided,
  kFlashInferTwoSided,
  kMoriHighThroughput,
  kMoriLowLatency,
};
constexpr ActivationFormat dispatched_format(ExpertParallelKind kind) {
  return kind == ExpertParallelKind::kDeepEpLowLatency || kind == ExpertParallelKind::kNixl
             ? ActivationFormat::kBatched
             : ActivationFormat::kStandard;
}

// Parts of an expert that adapters touch, as bits.
enum Projection : std::uint8_t { kGate = 1, kUp = 2, kDown = 4 };

// Where the A and B of the file belong, as bits. All reach a backend in one canonical form; a backend may still refuse
// a kind of sharing that its kernels cannot express.
enum AdapterLayout : std::uint8_t {
  kPerExpert = 1,      // own A and B for every projection and expert
  kSharedGateUpA = 2,  // gate and up share one A for each expert
  kSharedOuter = 4,    // one A of gate/up and one B of down for all experts
};

// What adapters may ask of one layer. No adapters: max_adapters is 0.
struct AdapterDemand {
  int max_adapters = 0;
  int max_rank = 0;
  std::uint8_t projections = 0;  // bits of Projection
  std::uint8_t layouts = 0;      // bits of AdapterLayout
  // Under tensor parallelism: both A and B are split over the ranks, instead of one of them being repeated on each.
  bool fully_sharded = false;
  bool any() const { return max_adapters > 0 && projections != 0; }
  bool operator==(const AdapterDemand&) const = default;
};

struct TokenShare {
  int tokens = 0;     // rows in one call
  double weight = 0;  // share of calls
  bool operator==(const TokenShare&) const = default;
};

struct Deployment {
  DeviceCaps device;
  DeviceKind activations_on = DeviceKind::kCpu;  // where the activations live
  int tensor_parallel = 1;                       // ranks one expert is split over
  int expert_parallel = 1;                       // ranks the experts are spread over
  ExpertParallelKind expert_parallel_kind = ExpertParallelKind::kNone;
  int data_parallel = 1;           // replicas of the rest of the model that share these experts
  bool sequence_parallel = false;  // every rank hands in its own part of the rows and takes that part back
  int redundant_experts = 0;       // copies of busy experts, over all ranks
  bool rebalance_experts = false;  // experts move between ranks while serving (EPLB)
  WeightType activation_type = WeightType::kBF16;
  ActivationFormat format = ActivationFormat::kStandard;
  AdapterDemand adapters;
  std::vector<TokenShare> token_mix;   // empty: half at 8 rows, half at max_tokens
  int max_tokens = 512;                // rows of the largest call (the prefill chunk)
  bool need_repeatable = true;         // the same call gives the same bits
  bool need_adapter_isolation = true;  // a base row's bits do not depend on adapters of other rows
  bool need_batch_invariance = false;  // a row's bits do not depend on other rows or on chunking
  bool graph_capture = false;          // calls are captured into a device graph
  std::int64_t workspace_limit = 0;    // bytes; 0: no limit
  bool operator==(const Deployment&) const = default;
};

// Intermediate width of one expert on one rank; the layer's own where it is not split.
inline std::int64_t intermediate_per_rank(const LayerSpec& spec, const Deployment& deployment) {
  return (spec.intermediate + deployment.tensor_parallel - 1) / deployment.tensor_parallel;
}
// Experts one rank holds, copies included.
inline int experts_per_rank(const LayerSpec& spec, const Deployment& deployment) {
  return (spec.experts + deployment.redundant_experts + deployment.expert_parallel - 1) / deployment.expert_parallel;
}

// ---- both ---------------------------------------------------------------------------------------------------------

// Sizes up to which a spec is looked at: far above every published model, and low enough that bytes, operations and
// workspaces are counted in 64 bits without overflow.
inline constexpr std::int64_t kMaxLayerWidth = std::int64_t{1} << 24;
inline constexpr int kMaxLayerExperts = 1 << 16, kMaxLayerTopK = 1 << 10, kMaxCallTokens = 1 << 24, kMaxRanks = 1 << 16;

// Whether the two make sense at all, before any backend is asked: positive sizes, top_k within experts, a dispatch that
// hands over the format asked for. The gate refuses what does not as kInvalidArgument.
CADRE_API Status validate(const LayerSpec& spec, const Deployment& deployment);

// In one line: "128 experts, top-8, hidden 2048, intermediate 768, silu gated, bfloat16, softmax_topk renormalised".
CADRE_API std::string describe(const LayerSpec& spec);
CADRE_API std::string describe(const Deployment& deployment);

// Names as in JSON and in messages.
CADRE_API std::string_view to_string(Activation a);
CADRE_API std::string_view to_string(Routing r);
CADRE_API std::string_view to_string(WeightType t);
CADRE_API std::string_view to_string(WeightScheme s);
CADRE_API std::string_view to_string(DeviceKind k);
CADRE_API std::string_view to_string(ActivationFormat f);
CADRE_API std::string_view to_string(ExpertParallelKind k);

// Equal values have equal hashes, within one run of one build.
CADRE_API std::size_t hash_value(const LayerSpec& spec);
CADRE_API std::size_t hash_value(const Deployment& deployment);

}  // namespace cadre

template <>
struct std::hash<cadre::LayerSpec> {
  std::size_t operator()(const cadre::LayerSpec& spec) const { return cadre::hash_value(spec); }
};
template <>
struct std::hash<cadre::Deployment> {
  std::size_t operator()(const cadre::Deployment& deployment) const { return cadre::hash_value(deployment); }
};
