// The ranks' partial sums add up to the whole layer.
#include "moe/moe_random.h"

namespace cadre::test {
namespace {

TEST(MoeShards, PartialSumsOfAllRanksEqualTheWhole) {
  int points = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    RandomCase c = random_case(40000 + seed);
    if (c.tokens == 0) continue;
    std::mt19937 random(seed);
    c.spec.intermediate = 32 * (1 + random() % 5) + (seed % 3 == 0 ? random() % 31 : 0);
    if (seed % 2 == 0) {  // what the narrower backends admit as well
      c.spec.hidden = c.spec.latent = 64;
      c.spec.weights.type = WeightType::kBF16;
      c.spec.activation = {seed % 4 == 0 ? Activation::kSilu : Activation::kRelu2, seed % 4 == 0};
      c.spec.expert_bias = c.spec.router_weight_on_input = false;
      c.deployment.adapters.layouts &= kPerExpert | kSharedGateUpA;
      for (AdapterShape& shape : c.adapters) shape.layout = kPerExpert;
      if (!c.adapters.empty()) c.deployment.adapters.layouts = kPerExpert;
    }
    c.deployment.tensor_parallel = 1 + static_cast<int>(random() % 4);
    c.deployment.expert_parallel = 1 + static_cast<int>(random() % 4);
    c.deployment.expert_parallel_kind =
        c.deployment.expert_parallel > 1 ? ExpertParallelKind::kAllGatherReduceScatter : ExpertParallelKind::kNone;
    const CaseData data(c, seed);
    const std::vector<Exact> whole = moe_exact(c.spec, data.weights, data.adapters, data.batch);
    for (const MoeBackend* backend : built_in_backends()) {
      if (!backend->check(c.spec, c.deployment).empty()) continue;
      SCOPED_TRACE(std::string(backend->name()) + ", seed " + std::to_string(seed) + ": " + c.describe());
      std::vector<double> sum(whole.size());
      for (int tensor = 0; tensor < c.deployment.tensor_parallel; ++tensor) {
        for (int expert = 0; expert < c.deployment.expert_parallel; ++expert) {
          const Result<Floats> part = run_moe(std::string("require ") + backend->name(), c.spec, c.deployment,
                                              data.weights, data.adapters, data.batch, {}, tensor, expert);
          ASSERT_TRUE(part.ok()) << part.status().message();
          ASSERT_EQ(part->size(), sum.size());
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>((*part)[i]);
        }
      }
      for (std::size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(sum[i], whole[i].value, 4e-6 * whole[i].magnitude + 1e-30) << i;
      }
      ++points;
    }
  }
  EXPECT_GT(points, 60);  // both backends took part
}

// More ranks than there is to split: the last ones hold nothing and add nothing.
TEST(MoeShards, ARankWithNothingAddsZero) {
  for (const MoeBackend* backend : built_in_backends()) {
    RandomCase c;
    c.spec.experts = 3;
    c.spec.top_k = 2;
    c.spec.hidden = 64;
    c.spec.intermediate = 5;
    c.deployment = here();
    c.deployment.tensor_parallel = 4;  // 2, 2, 1, 0
    c.deployment.expert_parallel = 4;
    c.deployment.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
    c.deployment.adapters = {1, 4, kGate | kUp | kDown, kPerExpert};
    AdapterShape shape;
    shape.max_rank = 4;
    c.adapters = {shape};
    c.tokens = 5;
    const CaseData data(c, 9);
    for (const auto& [tensor, expert] : {std::pair{3, 0}, std::pair{0, 3}, std::pair{3, 3}}) {
      const Result<Floats> got = run_moe(std::string("require ") + backend->name(), c.spec, c.deployment, data.weights,
                                         data.adapters, data.batch, {}, tensor, expert);
      ASSERT_TRUE(got.ok()) << got.status().message();
      for (const float y : *got) ASSERT_EQ(y, 0.0f) << backend->name();
    }
  }
}

}  // namespace
}  // namespace cadre::test
