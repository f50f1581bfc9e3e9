// The yardstick itself, against definitions in double precision.
#include "moe/moe_random.h"

namespace cadre::test {
namespace {

void check(unsigned first, unsigned count, const Machine& machine) {
  std::map<std::string, int> seen;
  for (unsigned seed = first; seed < first + count; ++seed) {
    const RandomCase c = random_case(seed);
    const CaseData data(c, seed * 1000);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.describe());
    const Result<Floats> got = run_moe("require cpu_reference", c.spec, c.deployment, data.weights, data.adapters,
                                       data.batch, machine, c.tensor_rank, c.expert_rank);
    ASSERT_TRUE(got.ok()) << got.status().message();
    const ExpertShard shard{c.tensor_rank, c.deployment.tensor_parallel, c.expert_rank, c.deployment.expert_parallel};
    ASSERT_NO_FATAL_FAILURE(expect_close(*got, moe_exact(c.spec, data.weights, data.adapters, data.batch, shard)));
    ++seen[c.tokens == 0 ? "no tokens" : "tokens"];
    ++seen[c.adapters.empty() ? "plain" : "adapted"];
    ++seen[c.spec.router_weight_on_input ? "on input" : "on output"];
    ++seen["activation " + std::to_string(static_cast<int>(c.spec.activation.kind))];
    ++seen[c.ids == Ids::kOneExpert ? "one expert" : c.ids == Ids::kWithHoles ? "holes" : "distinct"];
  }
  // Every kind of case took part.
  EXPECT_EQ(seen.size(), 14u);
}

TEST(MoeReference, FiveHundredRandomLayersInDoublePrecision) { check(1, 500, {"cpu", 1}); }
TEST(MoeReference, RandomLayersWithThreads) { check(2000, 100, {"cpu", 3}); }
TEST(MoeReference, RandomLayersOnTheTestDevice) { check(3000, 60, {"test", 2}); }

TEST(MoeReference, AnAdapterAsLargeAsTheBaseChangesTheResultByItsDelta) {
  RandomCase c;
  c.spec.experts = 4;
  c.spec.top_k = 2;
  c.spec.hidden = 64;
  c.spec.intermediate = 48;
  c.deployment = here();
  c.deployment.adapters = {1, 8, kDown, kPerExpert};
  AdapterShape shape;
  shape.projections = kDown;
  c.adapters = {shape};
  c.tokens = 6;
  const CaseData data(c, 5);
  MoeBatch with = data.batch, without = data.batch;
  std::fill(with.slots.begin(), with.slots.end(), 0);
  std::fill(without.slots.begin(), without.slots.end(), -1);
  const auto run = [&](const MoeBatch& batch) {
    return run_moe("require cpu_reference", c.spec, c.deployment, data.weights, data.adapters, batch).value();
  };
  const Floats a = run(with), b = run(without);
  const auto exact_with = moe_exact(c.spec, data.weights, data.adapters, with);
  const auto exact_without = moe_exact(c.spec, data.weights, data.adapters, without);
  double delta = 0, base = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double want = exact_with[i].value - exact_without[i].value;
    const double allowed = 2e-6 * (exact_with[i].magnitude + exact_without[i].magnitude);
    ASSERT_NEAR(static_cast<double>(a[i]) - static_cast<double>(b[i]), want, allowed) << i;
    delta += want * want;
    base += exact_without[i].value * exact_without[i].value;
  }
  EXPECT_GT(delta, 0.1 * base);
}

}  // namespace
}  // namespace cadre::test
