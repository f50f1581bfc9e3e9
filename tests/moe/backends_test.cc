// Every backend of the project against the reference, wherever the gate admits it.
#include "moe/moe_random.h"

namespace cadre::test {
namespace {

// The layer bent until the backend has nothing against it: what a test of many admitted points needs. False where it
// still refuses.
bool bend(const MoeBackend& backend, RandomCase& c) {
  for (int i = 0; i < 4 && !backend.check(c.spec, c.deployment).empty(); ++i) {
    for (const Refusal& refusal : backend.check(c.spec, c.deployment)) {
      switch (refusal.code) {
        case Reason::kWeightType:
          c.spec.weights.type = WeightType::kBF16;
          break;
        case Reason::kActivation:
          c.spec.activation.kind = Activation::kSilu;
          [[fallthrough]];
        case Reason::kActivationParameters:
          c.spec.activation.alpha = 1;
          c.spec.activation.beta = 0;
          break;
        case Reason::kActivationClamp:
          c.spec.activation.limit = std::numeric_limits<float>::infinity();
          break;
        case Reason::kExpertBias:
          c.spec.expert_bias = false;
          break;
        case Reason::kRouterWeightOnInput:
          c.spec.router_weight_on_input = false;
          break;
        case Reason::kHiddenSize:
          (c.spec.latent > 0 ? c.spec.latent : c.spec.hidden) = (c.spec.expert_width() + 31) / 32 * 32;
          break;
        case Reason::kIntermediateSize:
          c.spec.intermediate = (c.spec.intermediate + 127) / 128 * 128;
          break;
        case Reason::kAdapterLayout:
          c.deployment.adapters.layouts = kPerExpert;
          for (AdapterShape& shape : c.adapters) shape.layout = kPerExpert;
          break;
        default:
          return false;
      }
    }
  }
  return backend.check(c.spec, c.deployment).empty();
}

void check(const MoeBackend& backend, unsigned first, int wanted, const Machine& machine) {
  int points = 0;
  for (unsigned seed = first; points < wanted && seed < first + 3 * static_cast<unsigned>(wanted); ++seed) {
    RandomCase c = random_case(seed);
    if (!bend(backend, c)) continue;
    const CaseData data(c, seed * 1000);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.describe());
    const auto run = [&](const std::string& name) {
      return run_moe("require " + name, c.spec, c.deployment, data.weights, data.adapters, data.batch, machine,
                     c.tensor_rank, c.expert_rank);
    };
    const Result<Floats> got = run(backend.name()), want = run("cpu_reference");
    ASSERT_TRUE(got.ok()) << got.status().message();
    ASSERT_TRUE(want.ok()) << want.status().message();
    const ExpertShard shard{c.tensor_rank, c.deployment.tensor_parallel, c.expert_rank, c.deployment.expert_parallel};
    std::vector<Exact> bound = moe_exact(c.spec, data.weights, data.adapters, data.batch, shard);
    ASSERT_EQ(want->size(), bound.size());
    for (std::size_t i = 0; i < bound.size(); ++i) bound[i].value = (*want)[i];
    ASSERT_NO_FATAL_FAILURE(expect_close(*got, bound, 3e-6));
    ++points;
  }
  EXPECT_EQ(points, wanted);
}

TEST(MoeBackends, MeetTheReferenceOnRandomAdmittedLayers) {
  int fast = 0;
  for (const MoeBackend* backend : built_in_backends()) {
    if (std::string(backend->name()) == "cpu_reference") continue;
    SCOPED_TRACE(backend->name());
    check(*backend, 10000, 300, {"cpu", 1});
    check(*backend, 20000, 60, {"cpu", 4});
    check(*backend, 30000, 40, {"test", 2});
    ++fast;
  }
  EXPECT_GE(fast, 1);
}

// Longer sums than the random layers have: several chunks of k, full and odd tiles.
TEST(MoeBackends, MeetTheReferenceOnLongSums) {
  for (const std::int64_t tokens : {1, 5, 13, 40, 130}) {
    RandomCase c;
    c.spec.experts = 3;
    c.spec.top_k = 2;
    c.spec.hidden = 800;
    c.spec.intermediate = 544;
    c.deployment = here();
    c.deployment.adapters = {2, 70, kGate | kUp | kDown, kPerExpert | kSharedGateUpA};
    AdapterShape wide, shared;
    wide.max_rank = 70;
    shared.layout = kSharedGateUpA;
    c.adapters = {wide, shared};
    c.tokens = tokens;
    const CaseData data(c, 17);
    for (const MoeBackend* backend : built_in_backends()) {
      const Floats got = run_moe(std::string("require ") + backend->name(), c.spec, c.deployment, data.weights,
                                 data.adapters, data.batch, {"cpu", 2})
                             .value();
      ASSERT_NO_FATAL_FAILURE(expect_close(got, moe_exact(c.spec, data.weights, data.adapters, data.batch), 3e-6))
          << backend->name() << ", " << tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace cadre::test
