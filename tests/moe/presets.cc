#include "moe/presets.h"

#include <cstdlib>

namespace cadre::test {
namespace {

constexpr RoutingSpec kRenormalised = {.kind = Routing::kSoftmaxTopK, .renormalize = true};
constexpr RoutingSpec kSoftmax = {.kind = Routing::kSoftmaxTopK};
constexpr RoutingSpec kBiasedSigmoid = {.kind = Routing::kSigmoidTopK, .renormalize = true, .selection_bias = true};
constexpr ActivationSpec kRelu2 = {.kind = Activation::kRelu2, .gated = false};
constexpr ActivationSpec kGptOss = {
    .kind = Activation::kSwigluOai, .gated = true, .alpha = 1.702f, .beta = 1.0f, .limit = 7.0f};

RoutingSpec scaled(RoutingSpec routing, float scale, int groups = 1, int topk_groups = 1) {
  routing.scale = scale;
  routing.groups = groups;
  routing.topk_groups = topk_groups;
  return routing;
}

LayerSpec layer(int experts, int top_k, std::int64_t hidden, std::int64_t intermediate, RoutingSpec routing,
                ActivationSpec activation = {}) {
  LayerSpec s;
  s.experts = experts;
  s.top_k = top_k;
  s.hidden = hidden;
  s.intermediate = intermediate;
  s.routing = routing;
  s.activation = activation;
  return s;
}

LayerSpec gpt_oss(int experts, WeightFormat weights) {
  LayerSpec s = layer(experts, 4, 2880, 2880, {.kind = Routing::kTopKSoftmax}, kGptOss);
  s.weights = weights;
  s.expert_bias = s.router_bias = s.interleaved_gate_up = true;
  return s;
}

std::vector<NamedSpec> make_specs() {
  std::vector<NamedSpec> list;
  list.push_back({"mixtral-8x7b", layer(8, 2, 4096, 14336, kRenormalised)});
  list.push_back({"qwen3-30b-a3b", layer(128, 8, 2048, 768, kRenormalised)});
  list.push_back({"qwen3-235b-a22b", layer(128, 8, 4096, 1536, kRenormalised)});
  list.push_back({"olmoe", layer(64, 8, 2048, 1024, kSoftmax)});
  LayerSpec qwen2 = layer(60, 4, 2048, 1408, kSoftmax);
  qwen2.shared_experts = 1;
  qwen2.shared_intermediate = 5632;
  list.push_back({"qwen2-moe", qwen2});
  LayerSpec nano = layer(128, 6, 2688, 1856, scaled(kBiasedSigmoid, 2.5f), kRelu2);
  nano.shared_experts = 1;
  nano.shared_intermediate = 3712;
  list.push_back({"nemotron-3-nano", nano});
  LayerSpec super = layer(512, 22, 4096, 2688, scaled(kBiasedSigmoid, 5.0f), kRelu2);
  super.latent = 1024;
  list.push_back({"nemotron-3-super", super});
  LayerSpec deepseek = layer(256, 8, 7168, 2048, scaled(kBiasedSigmoid, 2.5f, 8, 4));
  deepseek.shared_experts = 1;
  deepseek.shared_intermediate = 2048;
  list.push_back({"deepseek-v3", deepseek});
  list.push_back({"gpt-oss-20b", gpt_oss(32, {WeightType::kMxfp4, WeightScheme::kBlockScaled, 32})});
  list.push_back({"gpt-oss-20b-bf16", gpt_oss(32, {})});
  LayerSpec gemma = layer(128, 8, 2816, 704, kRenormalised, {.kind = Activation::kGeluTanh});
  gemma.routing.per_expert_scale = true;
  list.push_back({"gemma-4-26b-a4b", gemma});
  LayerSpec llama4 = layer(16, 1, 5120, 8192, {.kind = Routing::kSigmoidInput});
  llama4.router_weight_on_input = true;
  list.push_back({"llama-4-scout", llama4});
  list.push_back({"phi-3.5-moe", layer(16, 2, 4096, 6400, {.kind = Routing::kSparseMixer})});
  list.push_back({"granite-3-1b", layer(32, 8, 1024, 512, {.kind = Routing::kTopKSoftmax})});
  list.push_back({"minimax-m2", layer(256, 8, 3072, 1536, kBiasedSigmoid)});
  LayerSpec fp8 = layer(256, 8, 2048, 512, kRenormalised);
  fp8.weights = {WeightType::kF8E4M3, WeightScheme::kBlockScaled, 128};
  list.push_back({"qwen3.6-35b-a3b-fp8", fp8});
  return list;
}

DeviceCaps gpu(const char* name, DeviceKind kind, int sm, double gb_s, double tflop_s) {
  DeviceCaps caps;
  caps.name = name;
  caps.kind = kind;
  caps.sm = sm;
  caps.memory_gb_s = gb_s;
  caps.bf16_gflop_s = tflop_s * 1e3;
  caps.described = true;
  return caps;
}

DeviceCaps cpu(const char* name, int level, int cores) {
  DeviceCaps caps;
  caps.name = name;
  caps.avx2 = level >= 1;
  caps.avx512 = level >= 2;
  caps.avx512_bf16 = level >= 3;
  caps.amx_bf16 = level >= 4;
  caps.cores = cores;
  caps.described = true;
  return caps;
}

std::vector<NamedDevice> make_devices() {
  return {
      {"cpu", cpu("cpu", 0, 4)},
      {"cpu-avx2", cpu("cpu-avx2", 1, 8)},
      {"cpu-avx512", cpu("cpu-avx512", 2, 32)},
      {"cpu-avx512-bf16", cpu("cpu-avx512-bf16", 3, 48)},
      {"cpu-amx", cpu("cpu-amx", 4, 64)},
      {"a100", gpu("a100", DeviceKind::kCuda, 80, 2000, 312)},
      {"h100", gpu("h100", DeviceKind::kCuda, 90, 3350, 990)},
      {"h200", gpu("h200", DeviceKind::kCuda, 90, 4800, 990)},
      {"b200", gpu("b200", DeviceKind::kCuda, 100, 8000, 2250)},
      {"b300", gpu("b300", DeviceKind::kCuda, 103, 8000, 2250)},
      {"thor", gpu("thor", DeviceKind::kCuda, 110, 273, 250)},
      {"rtx-6000", gpu("rtx-6000", DeviceKind::kCuda, 120, 1800, 500)},
      {"mi300x", gpu("mi300x", DeviceKind::kRocm, 0, 5300, 1300)},
      {"xpu", gpu("xpu", DeviceKind::kXpu, 0, 3200, 830)},
      {"tpu", gpu("tpu", DeviceKind::kTpu, 0, 2700, 900)},
      {"npu", gpu("npu", DeviceKind::kOutOfTree, 0, 1600, 300)},
  };
}

}  // namespace

const std::vector<NamedSpec>& preset_specs() {
  static const std::vector<NamedSpec> list = make_specs();
  return list;
}

const std::vector<NamedDevice>& preset_devices() {
  static const std::vector<NamedDevice> list = make_devices();
  return list;
}

LayerSpec spec_of(std::string_view name) {
  for (const NamedSpec& s : preset_specs()) {
    if (s.name == name) return s.spec;
  }
  std::abort();  // a name misspelt in a test
}

Deployment on(std::string_view device) {
  for (const NamedDevice& d : preset_devices()) {
    if (d.name != device) continue;
    Deployment deployment;
    deployment.device = d.caps;
    deployment.activations_on = d.caps.kind;
    deployment.max_tokens = d.caps.kind == DeviceKind::kCpu ? 512 : 8192;
    return deployment;
  }
  std::abort();
}

Deployment with_lora(Deployment deployment, int max_rank, int max_adapters) {
  deployment.adapters = {
      .max_adapters = max_adapters, .max_rank = max_rank, .projections = kGate | kUp | kDown, .layouts = kPerExpert};
  return deployment;
}

}  // namespace cadre::test
