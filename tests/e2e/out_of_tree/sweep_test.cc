// Every point of a small space of layers and deployments: what the out-of-tree backend admits is run on random weights
// and meets the reference; what it does not admit has reasons.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/float16.h"
#include "careless.h"
#include "moe/rehearsal.h"
#include "out_of_tree_backend/backend.h"
#include "tensor/test_device.h"

namespace cadre {
namespace {

class RandomWeights final : public ExpertWeights {
 public:
  explicit RandomWeights(const LayerSpec& spec) {
    const std::int64_t size = spec.intermediate * spec.expert_width();
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0.0f, 0.1f);
    values_->resize(static_cast<std::size_t>(3 * spec.experts * size));
    for (Bf16& x : *values_) x = to_bf16(normal(random));
    for (std::int64_t i = 0; i < 3 * spec.experts; ++i) {
      Bf16* at = values_->data() + i * size;
      // Down lies transposed, as some files have it.
      matrices_.push_back(i % 3 < 2 ? View(at, DType::kBF16, {spec.intermediate, spec.expert_width()})
                                    : View(at, DType::kBF16, {spec.intermediate, spec.expert_width()}).transposed());
    }
  }
  Result<View> gate(int e) const override { return matrices_[static_cast<std::size_t>(3 * e)]; }
  Result<View> up(int e) const override { return matrices_[static_cast<std::size_t>(3 * e + 1)]; }
  Result<View> down(int e) const override { return matrices_[static_cast<std::size_t>(3 * e + 2)]; }
  Result<View> gate_bias(int) const override { return View(); }
  Result<View> up_bias(int) const override { return View(); }
  Result<View> down_bias(int) const override { return View(); }
  std::shared_ptr<const void> owner() const override { return values_; }

 private:
  std::shared_ptr<std::vector<Bf16>> values_ = std::make_shared<std::vector<Bf16>>();
  std::vector<View> matrices_;
};

struct Point {
  LayerSpec spec;
  Deployment deployment;
};

std::vector<Point> points() {
  std::vector<Point> out;
  for (const auto& [experts, top_k] : {std::pair(1, 1), std::pair(5, 2), std::pair(16, 16)}) {
    for (const auto& [width, intermediate] : {std::pair(8, 24), std::pair(33, 7), std::pair(64, 32)}) {
      for (const Activation act : {Activation::kSilu, Activation::kGelu, Activation::kSwigluOai}) {
        for (const WeightType type : {WeightType::kBF16, WeightType::kF32}) {
          for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
            Point p;
            p.spec = {.experts = experts, .top_k = top_k, .hidden = width, .intermediate = intermediate};
            p.spec.activation.kind = act;
            p.spec.weights.type = type;
            p.deployment.max_tokens = 9;
            p.deployment.token_mix = {{1, 0.5}, {7, 0.5}};
            if (variant == 1) p.spec.activation.limit = 7;
            if (variant == 2) p.spec.expert_bias = true;
            if (variant == 3) p.deployment.tensor_parallel = 2;
            if (variant == 4) p.deployment.need_batch_invariance = true;
            if (variant == 5) p.spec.latent = width / 2;
            if (variant == 6)
              p.deployment.adapters = {.max_adapters = 1, .max_rank = 4, .projections = kUp, .layouts = 1};
            if (variant == 7) p.deployment.workspace_limit = std::int64_t{9} * intermediate * 4;
            out.push_back(p);
          }
        }
      }
    }
  }
  return out;
}

Policy require(const char* name) { return {.kind = PolicyKind::kRequire, .names = {name}, .origin = "test"}; }

// The report of one point on one device, by the backend named.
Result<RehearsalReport> run(const MoeGate& gate, const char* name, const Point& p, const RandomWeights& weights,
                            Device& device) {
  const std::unique_ptr<Stream> stream = device.make_stream();
  ThreadPool threads(2);
  const ExpertInputs inputs{.weights = &weights, .device = &device, .stream = stream.get()};
  CADRE_ASSIGN(const Choice<MoeOp> choice, gate.select(p.spec, p.deployment, require(name)));
  CADRE_ASSIGN(const Choice<MoeOp> yardstick, gate.select(p.spec, p.deployment, require("cpu_reference")));
  CADRE_ASSIGN(const std::unique_ptr<Experts> experts, choice.admission.prepare(inputs));
  CADRE_ASSIGN(const std::unique_ptr<Experts> reference, yardstick.admission.prepare(inputs));
  return rehearse(*experts, *reference, p.spec, p.deployment, device, *stream, threads, RehearseMode::kFull);
}

TEST(OutOfTreeSweep, AdmittedIsRightAndRefusedHasReasons) {
  const Careless careless;
  const MoeGate gate = make_moe_gate({&scalar::backend(), &careless});
  auto guarded = make_test_device(std::size_t{1} << 30);
  ASSERT_TRUE(guarded.ok()) << guarded.status().message();
  const std::shared_ptr<Device> devices[] = {make_cpu_device(), *guarded};
  std::map<std::string, int> reasons;
  int admitted = 0;
  for (const Point& p : points()) {
    const auto selection = gate.explain(p.spec, p.deployment, Policy{});
    ASSERT_TRUE(selection.ok()) << selection.status().message();
    const auto mine = std::find_if(selection->candidates.begin(), selection->candidates.end(),
                                   [](const Candidate& c) { return c.backend == std::string("scalar_silu"); });
    ASSERT_NE(mine, selection->candidates.end());
    if (!mine->admitted) {
      ASSERT_FALSE(mine->refusals.empty());
      for (const Refusal& refusal : mine->refusals) ++reasons[std::string(reason_info(refusal.code).code)];
      // And there is no way to a kernel.
      EXPECT_EQ(gate.select(p.spec, p.deployment, require("scalar_silu")).status().code(), Code::kNoBackend);
      continue;
    }
    ++admitted;
    const RandomWeights weights(p.spec);
    for (const auto& device : devices) {
      const auto report = run(gate, "scalar_silu", p, weights, *device);
      ASSERT_TRUE(report.ok()) << describe(p.spec) << ": " << report.status().message();
      EXPECT_LT(report->error, 1e-5) << describe(p.spec);
    }
    EXPECT_EQ(run(gate, "careless", p, weights, *devices[0]).status().code(), Code::kInternal) << describe(p.spec);
  }
  EXPECT_EQ(admitted, 9 * 4);
  const std::map<std::string, int> want = {{"activation", 288}, {"weight_type", 216},    {"activation_clamp", 54},
                                           {"expert_bias", 54}, {"tensor_parallel", 54}, {"adapters", 54}};
  EXPECT_EQ(reasons, want);
}

}  // namespace
}  // namespace cadre
