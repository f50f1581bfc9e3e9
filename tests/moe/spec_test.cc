// LayerSpec and Deployment as values: validity, text, hash, JSON.
#include <limits>
#include <unordered_set>

#include "moe/presets.h"
#include "moe/spec_json.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

template <class T>
struct Change {
  const char* name;
  void (*apply)(T&);
};

// One change for each field; each makes a value of its own.
const std::vector<Change<LayerSpec>> kSpecChanges = {
    {"experts", [](LayerSpec& s) { s.experts *= 2; }},
    {"top_k", [](LayerSpec& s) { s.top_k += 1; }},
    {"hidden", [](LayerSpec& s) { s.hidden += 1; }},
    {"intermediate", [](LayerSpec& s) { s.intermediate += 1; }},
    {"latent", [](LayerSpec& s) { s.latent += 64; }},
    {"kind", [](LayerSpec& s) { s.activation.kind = Activation::kGelu; }},
    {"gated", [](LayerSpec& s) { s.activation.gated = !s.activation.gated; }},
    {"alpha", [](LayerSpec& s) { s.activation.alpha += 0.5f; }},
    {"beta", [](LayerSpec& s) { s.activation.beta += 1; }},
    {"limit", [](LayerSpec& s) { s.activation.limit = 5; }},
    {"routing", [](LayerSpec& s) { s.routing.kind = Routing::kSparseMixer; }},
    {"renormalize", [](LayerSpec& s) { s.routing.renormalize = !s.routing.renormalize; }},
    {"sum_epsilon", [](LayerSpec& s) { s.routing.sum_epsilon = 0.25f; }},
    {"scale", [](LayerSpec& s) { s.routing.scale += 1.5f; }},
    {"selection_bias", [](LayerSpec& s) { s.routing.selection_bias = !s.routing.selection_bias; }},
    {"per_expert_scale", [](LayerSpec& s) { s.routing.per_expert_scale = !s.routing.per_expert_scale; }},
    {"groups", [](LayerSpec& s) { s.routing.groups *= 2; }},
    {"topk_groups", [](LayerSpec& s) { s.routing.groups = 4, s.routing.topk_groups = 3; }},
    {"logits", [](LayerSpec& s) { s.routing.logits = WeightType::kBF16; }},
    {"type", [](LayerSpec& s) { s.weights.type = WeightType::kF32; }},
    {"scheme", [](LayerSpec& s) { s.weights.scheme = WeightScheme::kBlockScaled; }},
    {"block", [](LayerSpec& s) { s.weights.scheme = WeightScheme::kBlockScaled, s.weights.block = 16; }},
    {"expert_bias", [](LayerSpec& s) { s.expert_bias = !s.expert_bias; }},
    {"router_bias", [](LayerSpec& s) { s.router_bias = !s.router_bias; }},
    {"interleaved", [](LayerSpec& s) { s.interleaved_gate_up = !s.interleaved_gate_up; }},
    {"weight on input", [](LayerSpec& s) { s.router_weight_on_input = !s.router_weight_on_input; }},
    {"shared_experts", [](LayerSpec& s) { s.shared_experts += 1; }},
    {"shared_intermediate", [](LayerSpec& s) { s.shared_experts += 3, s.shared_intermediate += 64; }},
};
const std::vector<Change<Deployment>> kDeploymentChanges = {
    {"name", [](Deployment& d) { d.device.name = "other"; }},
    {"device kind", [](Deployment& d) { d.device.name = "rocm", d.device.kind = DeviceKind::kRocm; }},
    {"sm", [](Deployment& d) { d.device.sm = 121; }},
    {"described", [](Deployment& d) { d.device.described = !d.device.described; }},
    {"activations_on", [](Deployment& d) { d.activations_on = DeviceKind::kTpu; }},
    {"tensor_parallel", [](Deployment& d) { d.tensor_parallel = 4; }},
    {"expert_parallel", [](Deployment& d) { d.expert_parallel = 4; }},
    {"kind", [](Deployment& d) { d.expert_parallel_kind = ExpertParallelKind::kMoriLowLatency; }},
    {"data_parallel", [](Deployment& d) { d.data_parallel = 3; }},
    {"sequence_parallel", [](Deployment& d) { d.sequence_parallel = true; }},
    {"redundant_experts", [](Deployment& d) { d.redundant_experts = 8; }},
    {"rebalance_experts", [](Deployment& d) { d.rebalance_experts = true; }},
    {"activation_type", [](Deployment& d) { d.activation_type = WeightType::kF16; }},
    {"format", [](Deployment& d) { d.format = ActivationFormat::kBatched; }},
    {"max_adapters", [](Deployment& d) { d.adapters.max_adapters = 9; }},
    {"max_rank", [](Deployment& d) { d.adapters.max_rank = 99; }},
    {"projections", [](Deployment& d) { d.adapters.projections = kDown; }},
    {"layouts", [](Deployment& d) { d.adapters.layouts = kSharedOuter; }},
    {"fully_sharded", [](Deployment& d) { d.adapters.fully_sharded = true; }},
    {"token_mix", [](Deployment& d) { d.token_mix = {{1, 1.0}, {64, 0.5}}; }},
    {"max_tokens", [](Deployment& d) { d.max_tokens = 77; }},
    {"repeatable", [](Deployment& d) { d.need_repeatable = false; }},
    {"isolation", [](Deployment& d) { d.need_adapter_isolation = false; }},
    {"invariance", [](Deployment& d) { d.need_batch_invariance = true; }},
    {"graph", [](Deployment& d) { d.graph_capture = true; }},
    {"workspace", [](Deployment& d) { d.workspace_limit = 1 << 20; }},
};

Deployment base_deployment() {
  Deployment d = with_lora(on("h100"));
  d.expert_parallel = 2;
  d.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
  return d;
}

template <class T>
void every_field_counts(const T& base, const std::vector<Change<T>>& changes) {
  std::unordered_set<T> values = {base};
  std::unordered_set<std::string> texts = {describe(base)};
  std::unordered_set<std::size_t> hashes = {std::hash<T>{}(base)};
  for (const auto& change : changes) {
    T changed = base;
    change.apply(changed);
    EXPECT_TRUE(values.insert(changed).second) << change.name << " does not count for ==";
    EXPECT_TRUE(hashes.insert(std::hash<T>{}(changed)).second) << change.name << " does not count for the hash";
    EXPECT_TRUE(texts.insert(describe(changed)).second) << change.name << " is not in: " << describe(changed);
    EXPECT_EQ(std::hash<T>{}(changed), std::hash<T>{}(T(changed)));
  }
}

TEST(Spec, EveryFieldCounts) { every_field_counts(spec_of("qwen3-30b-a3b"), kSpecChanges); }
TEST(Deployment, EveryFieldCounts) { every_field_counts(base_deployment(), kDeploymentChanges); }

TEST(Spec, ReadsWhatItWrites) {
  const auto round_trip = [](const LayerSpec& s) {
    const Result<Json> json = Json::parse(to_json_value(s).dump(), "spec");
    ASSERT_TRUE(json.ok());
    const Result<LayerSpec> back = read_layer_spec(*json);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, s) << describe(*back) << " | " << describe(s);
  };
  for (const NamedSpec& preset : preset_specs()) round_trip(preset.spec);
  for (const auto& change : kSpecChanges) {
    LayerSpec s = spec_of("qwen3-30b-a3b");
    change.apply(s);
    SCOPED_TRACE(change.name);
    round_trip(s);
  }
}

TEST(Deployment, ReadsWhatItWrites) {
  const auto round_trip = [](const Deployment& d) {
    const Result<Json> json = Json::parse(to_json_value(d).dump(), "deployment");
    ASSERT_TRUE(json.ok());
    const Result<Deployment> back = read_deployment(*json);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, d) << describe(*back) << " | " << describe(d);
  };
  for (const NamedDevice& preset : preset_devices()) round_trip(on(preset.name));
  for (const auto& change : kDeploymentChanges) {
    Deployment d = base_deployment();
    change.apply(d);
    SCOPED_TRACE(change.name);
    round_trip(d);
  }
}

Result<Deployment> read(std::string_view text) {
  JsonParseOptions options;
  options.code = Code::kInvalidArgument;
  Result<Json> json = Json::parse(text, "plan.json", options);
  if (!json.ok()) return json.status();
  return read_deployment(*json);
}

TEST(Deployment, DefaultsFollowTheDeviceAndTheDispatch) {
  const Result<Deployment> d = read(
      R"({"device": {"name": "h100", "kind": "cuda", "sm": 90},
          "expert_parallel": 8, "expert_parallel_kind": "deepep_low_latency"})");
  ASSERT_TRUE(d.ok()) << d.status().message();
  EXPECT_EQ(d->activations_on, DeviceKind::kCuda);
  EXPECT_EQ(d->format, ActivationFormat::kBatched);
  EXPECT_TRUE(d->need_repeatable);
}

TEST(Deployment, RefusesWhatItDoesNotKnow) {
  const auto refused = [](std::string_view text, std::string_view phrase) {
    EXPECT_THAT(read(text), FailsWith(Code::kInvalidArgument, std::string(phrase))) << text;
  };
  refused(R"({"tensor_paralel": 2})", "'tensor_paralel' is unknown, want one of: device, activations_on");
  refused(R"({"device": {"kind": "gpu"}})",
          "'device.kind' is 'gpu', want one of: cpu, cuda, rocm, xpu, tpu, out_of_tree");
  refused(R"({"tensor_parallel": 0})", "tensor_parallel");
  refused(R"({"expert_parallel": 4})", "expert_parallel_kind is none, want how rows reach the 4 ranks");
  refused(R"({"expert_parallel_kind": "nixl", "format": "standard"})", "format is standard, want batched");
  refused(R"({"adapters": {"projections": ["q_proj"]}})", "has 'q_proj', want some of: gate, up, down");
  refused(R"({"adapters": {"max_adapters": 1, "projections": ["up"]}})", "max_rank is 0, want 1 to");
  refused(R"({"token_mix": [{"tokens": 8, "weight": -1}]})", "weight is -1");
  refused(R"({"token_mix": [{"tokens": 8, "weight": 0}]})", "the sum of weights is 0");
  refused(R"({"token_mix": [8]})", "want objects {tokens, weight}");
  refused(R"([])", "want an object");
}

TEST(Spec, RefusesWhatMakesNoSense) {
  const auto refused = [](void (*change)(LayerSpec&), const char* phrase) {
    LayerSpec s = spec_of("qwen3-30b-a3b");
    change(s);
    EXPECT_THAT(validate(s, on("h100")), FailsWith(Code::kInvalidArgument, phrase));
  };
  refused([](LayerSpec& s) { s.experts = 0; }, "experts is 0, want 1 to 65536");
  refused([](LayerSpec& s) { s.top_k = 129; }, "top_k is 129, want 1 to 128");
  refused([](LayerSpec& s) { s.hidden = -1; }, "hidden is -1");
  refused([](LayerSpec& s) { s.intermediate = std::int64_t{1} << 40; }, "intermediate is");
  refused([](LayerSpec& s) { s.routing.groups = 7; }, "groups is 7, want a divisor of 128 experts");
  refused([](LayerSpec& s) { s.routing.groups = 8, s.routing.topk_groups = 9; }, "topk_groups is 9, want 1 to 8");
  refused([](LayerSpec& s) { s.routing.groups = 32, s.routing.topk_groups = 1; },
          "top_k is 8, want at most 4, the experts of 1 groups");
  refused([](LayerSpec& s) { s.routing.sum_epsilon = -1e-6f; }, "sum_epsilon is -1e-06, want a number from 0 to 1");
  refused([](LayerSpec& s) { s.activation.limit = std::numeric_limits<float>::quiet_NaN(); }, "limit is");
  refused([](LayerSpec& s) { s.activation.alpha = std::numeric_limits<float>::infinity(); }, "alpha is inf");
  for (const NamedSpec& preset : preset_specs())
    EXPECT_THAT(validate(preset.spec, on("h100")), Succeeds()) << preset.name;
}

TEST(Deployment, RefusesWhatMakesNoSense) {
  const auto refused = [](void (*change)(Deployment&), const char* phrase) {
    Deployment d = on("h100");
    change(d);
    EXPECT_THAT(validate(spec_of("olmoe"), d), FailsWith(Code::kInvalidArgument, phrase));
  };
  refused([](Deployment& d) { d.tensor_parallel = 0; }, "tensor_parallel is 0");
  refused([](Deployment& d) { d.expert_parallel = -4; }, "expert_parallel is -4");
  refused([](Deployment& d) { d.device.cores = 0; }, "cores is 0");
  refused([](Deployment& d) { d.device.sm = 320; }, "sm is 320");
  refused([](Deployment& d) { d.max_tokens = 0; }, "max_tokens is 0");
  refused([](Deployment& d) { d.workspace_limit = -1; }, "workspace_limit is -1");
  refused([](Deployment& d) { d.adapters = {.max_adapters = 1, .max_rank = 8, .projections = 9, .layouts = 1}; },
          "projections is 9");
  refused([](Deployment& d) { d.adapters = {.max_adapters = 1, .max_rank = 8, .projections = 1}; }, "layouts is 0");
  refused([](Deployment& d) { d.token_mix = {{0, 1}}; }, "tokens is 0");
  refused([](Deployment& d) { d.device.memory_gb_s = std::numeric_limits<double>::quiet_NaN(); }, "memory_gb_s");
}

TEST(Spec, OneLineOfText) {
  EXPECT_EQ(describe(spec_of("qwen3-30b-a3b")),
            "128 experts, top-8, hidden 2048, intermediate 768, silu gated, bfloat16, softmax_topk renormalised");
  EXPECT_EQ(
      describe(spec_of("gpt-oss-20b")),
      "32 experts, top-4, hidden 2880, intermediate 2880, swiglu_oai gated alpha 1.702 beta 1 clamped at 7, mxfp4 "
      "block_scaled by 32, topk_softmax, expert biases, router bias, gate and up interleaved");
  EXPECT_EQ(describe(with_lora(on("h100"))),
            "h100 (sm_90), described, bfloat16, up to 4 adapters of rank 16 on gate up down, up to 8192 rows");
}

}  // namespace
}  // namespace cadre::test
