// How the gate decides and what it says.
#include <limits>

#include "gate/toy_op.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const Refusal kSize = {Reason::kIntermediateSize, "192", "a multiple of 128"};
const Refusal kAdapterRefusal = {Reason::kAdapters, "up to 4", "none"};

std::string policy_text(const std::string& text) { return text; }

Selection explain(const std::vector<const Backend<ToyOp>*>& list, const std::string& policy = "auto",
                  const ToyDeployment& deployment = {}, Status* why = nullptr) {
  Result<Policy> parsed = parse_policy(policy_text(policy), "test");
  EXPECT_TRUE(parsed.ok());
  Result<Selection> selection = Gate<ToyOp>(list).explain(1, deployment, *parsed, why);
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  return selection.ok() ? *selection : Selection{};
}

Status failure(const std::vector<const Backend<ToyOp>*>& list, const std::string& policy = "auto") {
  return Gate<ToyOp>(list).select(1, {}, *parse_policy(policy, "--backend")).status();
}

std::vector<std::string> order(const Selection& selection) {
  std::vector<std::string> names;
  for (const Candidate& c : selection.candidates) names.push_back(c.backend);
  return names;
}

TEST(Gate, AutoTakesTheFastestAdmitted) {
  const ToyBackend slow("slow", 30), fast("fast", 10), refused("refused", 1, {kSize});
  const Selection s = explain({&slow, &refused, &fast});
  EXPECT_EQ(s.chosen, "fast");
  EXPECT_THAT(order(s), ElementsAre("fast", "slow", "refused"));
  EXPECT_EQ(s.candidates[0].predicted_us.at(8), 10);
  EXPECT_THAT(s.candidates[0].remedies, ElementsAre("pads"));
  EXPECT_THAT(s.candidates[2].remedies, IsEmpty());
  EXPECT_THAT(s.candidates[2].refusals, ElementsAre(kSize));
}

TEST(Gate, KernelComesFromTheChosenBackend) {
  const ToyBackend slow("slow", 30), fast("fast", 10);
  Result<Choice<ToyOp>> choice = Gate<ToyOp>({&slow, &fast}).select(40, {}, {});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(&choice->admission.backend(), &fast);
  const auto kernel = choice->admission.prepare(2);
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ((*kernel)->size, 42);
}

TEST(Gate, WithinFivePercentTheListDecides) {
  const ToyBackend first("first", 104.9), second("second", 100), late("late", 105.2);
  EXPECT_EQ(explain({&first, &second}).chosen, "first");
  EXPECT_EQ(explain({&second, &first}).chosen, "second");
  EXPECT_EQ(explain({&late, &second}).chosen, "second");
}

TEST(Gate, TiesAreWithTheFastestNotWithTheNeighbour) {
  // 108 is within 5 % of 104, which is within 5 % of 100; it is no tie with the fastest.
  const ToyBackend a("a", 108), b("b", 104), c("c", 100);
  EXPECT_EQ(explain({&a, &b, &c}).chosen, "b");
}

TEST(Gate, TokenMixWeighsRelativeTimes) {
  // One wins at few rows by 2x, the other at many by 3x; absolute times at many rows must not drown the rest.
  const ToyBackend decode("decode", [](int t) { return t <= 8 ? 10.0 : 3000.0; });
  const ToyBackend prefill("prefill", [](int t) { return t <= 8 ? 20.0 : 1000.0; });
  const std::vector<const Backend<ToyOp>*> list = {&decode, &prefill};
  EXPECT_EQ(explain(list, "auto", {.mix = {{8, 0.5}, {512, 0.5}}}).chosen, "prefill");  // 2.0 to 1.5
  EXPECT_EQ(explain(list, "auto", {.mix = {{8, 0.9}, {512, 0.1}}}).chosen, "decode");   // 1.2 to 1.9
  EXPECT_EQ(explain(list, "auto", {.mix = {{8, 9}, {512, 1}}}).chosen, "decode");       // weights need no unit sum
  EXPECT_EQ(explain(list, "auto", {.mix = {{8, 1}, {512, 0}}}).chosen, "decode");
  EXPECT_EQ(explain(list, "auto", {.mix = {{8, 1}, {8, 1}, {512, 1}}}).chosen, "decode");  // counts may repeat
}

TEST(Gate, RefusedBackendsDoNotSetTheScale) {
  // A refused backend that is 1000x faster at 8 rows must not make the admitted ones look alike there.
  const ToyBackend refused("refused", [](int t) { return t <= 8 ? 0.01 : 1000.0; }, {kSize});
  const ToyBackend a("a", [](int t) { return t <= 8 ? 10.0 : 1000.0; });
  const ToyBackend b("b", [](int t) { return t <= 8 ? 20.0 : 900.0; });
  EXPECT_EQ(explain({&b, &a, &refused}).chosen, "a");
}

TEST(Gate, ABackendWithoutAPredictionComesAfterThoseWithOne) {
  for (const double odd :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    const ToyBackend unknown("unknown", odd), known("known", 1e9);
    const Selection s = explain({&unknown, &known});
    EXPECT_EQ(s.chosen, "known") << odd;
    EXPECT_THAT(s.candidates[1].predicted_us, IsEmpty());
    EXPECT_THAT(s.warnings, IsEmpty());
    EXPECT_EQ(explain({&unknown}).chosen, "unknown") << odd;  // and it is still usable
    EXPECT_EQ(explain({&unknown, &known}, "require unknown").chosen, "unknown") << odd;
  }
}

TEST(Gate, RequireIsHonouredOrRefused) {
  const ToyBackend slow("slow", 30), fast("fast", 10), refused("refused", 1, {kSize, kAdapterRefusal});
  EXPECT_EQ(explain({&slow, &fast, &refused}, "require slow").chosen, "slow");
  EXPECT_EQ(explain({&slow, &fast, &refused}, "slow").chosen, "slow");
  const Status status = failure({&slow, &fast, &refused}, "require refused");
  EXPECT_EQ(status.code(), Code::kNoBackend);
  EXPECT_EQ(status.message(),
            "required backend (--backend) is refused: refused: the intermediate size on each rank: got 192, want a "
            "multiple of 128; LoRA adapters on experts: got up to 4, want none; admitted here: slow, fast");
  EXPECT_THAT(failure({&refused}, "require refused"), FailsWith(Code::kNoBackend, "admitted here: none"));
}

TEST(Gate, PreferFallsBackWithItsReasons) {
  const ToyBackend slow("slow", 30), fast("fast", 10), refused("refused", 40, {kSize, kAdapterRefusal});
  Selection s = explain({&slow, &fast, &refused}, "prefer slow");
  EXPECT_EQ(s.chosen, "slow");
  EXPECT_THAT(s.warnings, IsEmpty());
  s = explain({&slow, &fast, &refused}, "prefer refused");
  EXPECT_EQ(s.chosen, "fast");
  ASSERT_THAT(s.warnings, SizeIs(1));
  EXPECT_EQ(s.warnings[0],
            "preferred backend refused (test) is refused, using fast instead: the intermediate size on each rank: got "
            "192, want a multiple of 128; LoRA adapters on experts: got up to 4, want none");
}

TEST(Gate, ExcludeIsAReasonLikeAnyOther) {
  const ToyBackend slow("slow", 30), fast("fast", 10), other("other", 90, {kSize});
  Selection s = explain({&slow, &fast}, "exclude fast");
  EXPECT_EQ(s.chosen, "slow");
  ASSERT_THAT(s.candidates[1].refusals, SizeIs(1));
  EXPECT_EQ(message(s.candidates[1].refusals[0]), "the policy: got exclude fast (test), want one that allows it");
  s = explain({&slow, &fast, &other}, "exclude fast,other");
  EXPECT_THAT(s.candidates[2].refusals, SizeIs(2));
  const Status status = failure({&slow, &fast, &other}, "exclude slow,fast");
  EXPECT_EQ(status.code(), Code::kNoBackend);
  EXPECT_THAT(status.message(), HasSubstr("slow: the policy: got exclude slow (--backend)"));
  EXPECT_THAT(status.message(), HasSubstr("other: the intermediate size on each rank: got 192"));
}

TEST(Gate, UnknownNamesAreRefusedWithTheNearest) {
  const ToyBackend a("cpu_reference", 30), b("cpu_vector", 10);
  const std::vector<const Backend<ToyOp>*> list = {&a, &b};
  for (const std::string verb : {"require ", "prefer ", "exclude "}) {
    EXPECT_THAT(
        failure(list, verb + "cpu_vectr"),
        FailsWith(Code::kInvalidArgument, "--backend: unknown backend 'cpu_vectr', did you mean 'cpu_vector'?"));
  }
  EXPECT_THAT(failure(list, "triton"), FailsWith(Code::kInvalidArgument, "want one of: cpu_reference, cpu_vector"));
  EXPECT_THAT(failure(list, "triton").message(), Not(HasSubstr("did you mean")));
  EXPECT_THAT(failure(list, "exclude cpu_vector,cpu_refrence"), FailsWith(Code::kInvalidArgument, "'cpu_reference'?"));
}

TEST(Gate, TwoBackendsOfOneNameAreRefused) {
  const ToyBackend a("same", 30), b("same", 10);
  EXPECT_THAT(failure({&a, &b}), FailsWith(Code::kInvalidArgument, "two backends are called 'same'"));
}

TEST(Gate, ErrorNamesEveryReasonOfEveryBackend) {
  const ToyBackend a("a", 30, {kSize, kAdapterRefusal}), b("b", 10, {{Reason::kExpertBias, "biases", "none"}});
  const Status status = failure({&a, &b});
  EXPECT_EQ(status.code(), Code::kNoBackend);
  EXPECT_EQ(
      status.message(),
      "no backend admits this layer: a: the intermediate size on each rank: got 192, want a multiple of 128; LoRA "
      "adapters on experts: got up to 4, want none | b: expert biases: got biases, want none");
  EXPECT_THAT(failure({}), FailsWith(Code::kNoBackend, "no backend"));
}

TEST(Gate, ExplainShowsTheSameWithoutABackend) {
  const ToyBackend a("a", 30, {kSize});
  Status why;
  const Selection s = explain({&a}, "require a", {}, &why);
  EXPECT_EQ(s.chosen, "");
  EXPECT_THAT(why, FailsWith(Code::kNoBackend, "192"));
  EXPECT_THAT(s.candidates, SizeIs(1));
  EXPECT_EQ(s.policy.origin, "test");
}

TEST(Gate, FallbackShowsItsPrice) {
  const ToyBackend general("general", 140), fused("fused", 100, {kSize, kAdapterRefusal}), worse("worse", 120, {kSize});
  Selection s = explain({&fused, &worse, &general});
  ASSERT_THAT(s.warnings, SizeIs(1));
  EXPECT_EQ(s.warnings[0],
            "general instead of fused, predicted 1.4x slower than the fastest refused (the intermediate size on each "
            "rank: got 192, want a multiple of 128; LoRA adapters on experts: got up to 4, want none)");
  const ToyBackend near("near", 98, {kSize}), best("best", 100);
  EXPECT_THAT(explain({&near, &best}).warnings, IsEmpty());  // a tie costs nothing
}

TEST(Gate, ABackendOfAnotherMachineIsNoPrice) {
  for (const Reason code : {Reason::kNotInThisBuild, Reason::kDeviceAbsent, Reason::kDeviceKind,
                            Reason::kInstructionSet, Reason::kComputeCapability}) {
    const ToyBackend general("general", 140), gpu("gpu", 1, {{code, "cpu", "cuda"}});
    EXPECT_THAT(explain({&gpu, &general}).warnings, IsEmpty()) << reason_info(code).code;
  }
}

TEST(Gate, PlanningWaivesTheBuildAndTheDeviceOnly) {
  const Refusal build = {Reason::kNotInThisBuild, "one without this backend", "one that includes it"};
  const Refusal absent = {Reason::kDeviceAbsent, "h100, described only", "one that is here"};
  const ToyBackend gpu("gpu", 1, {build, absent}), cpu("cpu", 9), bad("bad", 1, {build, kSize});
  const std::vector<const Backend<ToyOp>*> list = {&gpu, &cpu, &bad};
  EXPECT_EQ(explain(list).chosen, "cpu");
  const Selection s = explain(list, "auto", {.described = true});
  EXPECT_EQ(s.chosen, "gpu");
  EXPECT_THAT(s.candidates[0].waived, ElementsAre(build, absent));
  EXPECT_THAT(s.candidates[0].refusals, IsEmpty());
  EXPECT_THAT(s.candidates[2].refusals, ElementsAre(kSize));
  EXPECT_THAT(s.candidates[2].waived, ElementsAre(build));
}

TEST(Gate, APlanMakesNoKernel) {
  const Refusal absent = {Reason::kDeviceAbsent, "h100, described only", "one that is here"};
  const ToyBackend gpu("gpu", 1, {absent});
  Result<Choice<ToyOp>> choice = Gate<ToyOp>({&gpu}).select(1, {.described = true}, {});
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  EXPECT_THAT(choice->admission.prepare(1), FailsWith(Code::kUnsupported, "gpu: selected for a described device"));
}

// A backend whose check changes its mind is caught: the admission asks again.
class Fickle final : public Backend<ToyOp> {
 public:
  const char* name() const override { return "fickle"; }
  const char* description() const override { return ""; }
  std::vector<Refusal> check(const int&, const ToyDeployment&) const override {
    return asked_++ == 0 ? std::vector<Refusal>{} : std::vector<Refusal>{kSize};
  }
  double estimate(const int&, const ToyDeployment&, int) const override { return 1; }

 private:
  Result<std::unique_ptr<ToyKernel>> prepare(const Admission<ToyOp>&, const int&) const override {
    return std::make_unique<ToyKernel>();
  }
  mutable int asked_ = 0;
};

TEST(Gate, TheAdmissionItselfRunsTheCheck) {
  const Fickle fickle;
  EXPECT_THAT(Gate<ToyOp>({&fickle}).select(1, {}, {}), FailsWith(Code::kNoBackend, "fickle: the intermediate size"));
}

TEST(Gate, SameQuestionSameAnswer) {
  const ToyBackend a("a", 100), b("b", 100), c("c", 100), d("d", 50, {kSize}), e("e", 50, {kAdapterRefusal});
  const Selection first = explain({&a, &b, &c, &d, &e});
  for (int i = 0; i < 20; ++i) {
    const Selection again = explain({&a, &b, &c, &d, &e});
    EXPECT_EQ(order(again), order(first));
    EXPECT_EQ(again.warnings, first.warnings);
  }
  EXPECT_THAT(order(first), ElementsAre("a", "b", "c", "d", "e"));
}

}  // namespace
}  // namespace cadre::test
