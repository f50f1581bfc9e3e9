// Adapters beyond what a layer was planned for are refused by name; what is attached can be replaced and taken away.
#include <gmock/gmock.h>

#include "moe/moe_random.h"

namespace cadre::test {
namespace {

using ::testing::HasSubstr;

RandomCase planned() {
  RandomCase c;
  c.spec.experts = 4;
  c.spec.top_k = 2;
  c.spec.hidden = 64;
  c.spec.intermediate = 32;
  c.deployment = here();
  c.deployment.adapters = {2, 8, kUp | kDown, kPerExpert};
  c.tokens = 9;
  return c;
}

class Attach : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PreparedExperts> prepare(const RandomCase& c, const CaseData& data) {
    return PreparedExperts::make("require " + GetParam(), c.spec, c.deployment, data.weights).value();
  }
};

TEST_P(Attach, RefusesWhatIsBeyondThePlan) {
  const RandomCase c = planned();
  const CaseData data(c, 1);
  const auto experts = prepare(c, data);
  AdapterShape fits;
  fits.projections = kUp | kDown;
  AdapterShape high_rank = fits, gate = fits;
  high_rank.min_rank = high_rank.max_rank = 9;
  gate.projections = kGate;
  const RandomAdapter good(c.spec, fits, 1), high(c.spec, high_rank, 2), touches_gate(c.spec, gate, 3);
  const auto expect = [&](const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), Code::kLimitExceeded);
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  expect(experts->attach(2, good), "adapter slot 2 is beyond the 2 adapters");
  expect(experts->attach(-1, good), "adapter slot -1");
  expect(experts->attach(0, high), "adapter rank 9 is above the 8");
  expect(experts->attach(0, touches_gate), "projections");
  EXPECT_TRUE(experts->attach(0, good).ok());
  EXPECT_TRUE(experts->attach(1, good).ok());
  EXPECT_TRUE(experts->experts().attach(5, LayerLora{}).ok());  // leaves the experts alone: nothing to refuse
}

TEST_P(Attach, RefusesEverythingWhereNothingWasPlanned) {
  RandomCase c = planned();
  c.deployment.adapters = {};
  const CaseData data(c, 2);
  const auto experts = prepare(c, data);
  const RandomAdapter adapter(c.spec, {}, 1);
  EXPECT_EQ(experts->attach(0, adapter).code(), Code::kLimitExceeded);
  experts->experts().detach(0);  // nothing there: nothing happens
  EXPECT_EQ(experts->run(data.batch).size(), static_cast<std::size_t>(c.tokens * 64));
}

TEST_P(Attach, ARefusedAdapterLeavesTheSlotAsItWas) {
  const RandomCase c = planned();
  const CaseData data(c, 3);
  const auto experts = prepare(c, data);
  AdapterShape fits, high;
  fits.projections = high.projections = kUp | kDown;
  high.min_rank = high.max_rank = 64;
  const RandomAdapter good(c.spec, fits, 1), bad(c.spec, high, 2);
  ASSERT_TRUE(experts->attach(0, good).ok());
  const Floats before = experts->run(data.batch);
  ASSERT_FALSE(experts->attach(0, bad).ok());
  expect_same_bits(experts->run(data.batch), before, "after a refusal");
}

TEST_P(Attach, SlotsAreReplacedAndFreed) {
  const RandomCase c = planned();
  const CaseData data(c, 4);
  const auto experts = prepare(c, data);
  AdapterShape shape;
  shape.projections = kUp | kDown;
  const RandomAdapter first(c.spec, shape, 1), second(c.spec, shape, 2);
  const Floats bare = experts->run(data.batch);
  ASSERT_TRUE(experts->attach(0, first).ok());
  const Floats with_first = experts->run(data.batch);
  EXPECT_NE(with_first, bare);
  ASSERT_TRUE(experts->attach(0, second).ok());
  const Floats with_second = experts->run(data.batch);
  expect_close(with_second, moe_exact(c.spec, data.weights, {{0, &second}}, data.batch), 3e-6);
  experts->experts().detach(0);
  expect_same_bits(experts->run(data.batch), bare, "after detach");
  // Twice is as good as once; a slot that was never used can be freed.
  experts->experts().detach(0);
  experts->experts().detach(1);
  expect_same_bits(experts->run(data.batch), bare, "after a second detach");
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const MoeBackend* backend : built_in_backends()) out.emplace_back(backend->name());
  return out;
}
INSTANTIATE_TEST_SUITE_P(Every, Attach, ::testing::ValuesIn(names()), [](const auto& one) { return one.param; });

}  // namespace
}  // namespace cadre::test
