// A backend that an embedder brings: through plan and engine, right and wrong.
#include <cadre/engine.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "careless.h"
#include "io/json.h"
#include "moe/rehearsal.h"
#include "out_of_tree_backend/backend.h"

namespace cadre {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

std::string demo(const std::string& path) { return std::string(CADRE_SOURCE) + "/examples/models/" + path; }

EngineOptions options_with(const MoeBackend& backend, const std::string& policy) {
  EngineOptions options;
  options.model_dir = demo("qwen3_moe");
  options.backends = {&backend};
  const auto parsed = parse_policy(policy, "test");
  EXPECT_TRUE(parsed.ok());
  options.backend = *parsed;
  return options;
}

// The recorded prompts of the base model, answered greedily.
std::vector<std::vector<std::int32_t>> answers(Engine& engine) {
  const auto reference = Json::parse_file(demo("qwen3_moe/reference.json"));
  EXPECT_TRUE(reference.ok());
  std::map<std::uint64_t, std::vector<std::int32_t>> by_request;
  for (const Json& row : reference->items()) {
    if (row.has("adapter")) continue;
    Request request;
    request.prompt = *row.get_string("prompt");
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 24;
    const auto id = engine.submit(request);
    EXPECT_TRUE(id.ok()) << id.status().message();
    if (id.ok()) by_request[*id];
  }
  EXPECT_FALSE(by_request.empty());
  while (!engine.idle()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok());
    for (const Event& event : *events) {
      if (event.token) by_request[event.request].push_back(*event.token);
    }
  }
  std::vector<std::vector<std::int32_t>> out;
  for (auto& [id, ids] : by_request) out.push_back(std::move(ids));
  return out;
}

const std::vector<std::vector<std::int32_t>>& reference_answers() {
  static const auto kAnswers = [] {
    auto engine = Engine::open(options_with(scalar::backend(), "require cpu_reference"));
    EXPECT_TRUE(engine.ok());
    return answers(**engine);
  }();
  return kAnswers;
}

const Candidate& candidate(const Selection& selection, const std::string& name) {
  static const Candidate kNone;
  const auto at = std::find_if(selection.candidates.begin(), selection.candidates.end(),
                               [&](const Candidate& c) { return c.backend == name; });
  EXPECT_NE(at, selection.candidates.end()) << name;
  return at == selection.candidates.end() ? kNone : *at;
}

std::vector<Reason> codes(const Candidate& c) {
  std::vector<Reason> out;
  for (const Refusal& refusal : c.refusals) out.push_back(refusal.code);
  return out;
}

TEST(OutOfTree, IsExplained) {
  PlanOptions options;
  options.model_dir = demo("qwen3_moe");
  options.backends = {&scalar::backend()};
  auto planned = plan(options);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  const Candidate& here = candidate(planned->layers.at(0).selection, "scalar_silu");
  EXPECT_TRUE(here.admitted);
  EXPECT_GT(here.predicted_us.at(512), candidate(planned->layers[0].selection, "cpu_vector").predicted_us.at(512));

  options.max_loras = 2;
  options.max_lora_rank = 8;
  options.expert_targets = kUp;
  planned = plan(options);
  ASSERT_TRUE(planned.ok());
  EXPECT_THAT(codes(candidate(planned->layers.at(0).selection, "scalar_silu")),
              testing::ElementsAre(Reason::kAdapters));

  options.model_dir = demo("nemotron_h");
  options.tensor_parallel = 2;
  options.backend = {.kind = PolicyKind::kRequire, .names = {"scalar_silu"}, .origin = "test"};
  planned = plan(options);
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->layers.at(0).selection.chosen, "");
  EXPECT_THAT(codes(candidate(planned->layers[0].selection, "scalar_silu")),
              testing::UnorderedElementsAre(Reason::kNotGated, Reason::kAdapters, Reason::kTensorParallel));
  EXPECT_EQ(planned->no_backend.code(), Code::kNoBackend);
  EXPECT_THAT(planned->no_backend.message(), HasSubstr("required backend (test) is refused: scalar_silu: "));
  EXPECT_THAT(to_json(*planned), AllOf(HasSubstr("\"scalar_silu\""), HasSubstr("\"chosen\": null")));
}

TEST(OutOfTree, IsUnknownWhereItIsNotGiven) {
  PlanOptions options;
  options.model_dir = demo("qwen3_moe");
  options.backend = {.kind = PolicyKind::kRequire, .names = {"scalar_silu"}, .origin = "test"};
  EXPECT_EQ(plan(options).status().code(), Code::kInvalidArgument);
}

TEST(OutOfTree, TwoBackendsOfOneNameAreRefused) {
  const Careless twin("cpu_reference");
  const auto engine = Engine::open(options_with(twin, "auto"));
  EXPECT_EQ(engine.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(engine.status().message(), HasSubstr("two backends are called 'cpu_reference'"));
}

TEST(OutOfTree, IsRehearsedAndGeneratesTheSameText) {
  auto engine = Engine::open(options_with(scalar::backend(), "require scalar_silu"));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->backend_names(), "scalar_silu");
  for (const LayerReport& report : (*engine)->selection()) {
    EXPECT_GT(report.rehearsal_seconds, 0);
    EXPECT_GT(report.rehearsal_error, 0);
    EXPECT_LT(report.rehearsal_error, 1e-5);
    EXPECT_EQ(report.selection.candidates.front().measured_us.size(), 1u);
  }
  EXPECT_EQ(answers(**engine), reference_answers());
}

TEST(OutOfTree, ABugIsCaughtAndTheNextBackendTakesOver) {
  const Careless careless;
  for (const Rehearse how : {Rehearse::kQuick, Rehearse::kFull}) {
    EngineOptions options = options_with(careless, "auto");
    options.rehearse = how;
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_EQ((*engine)->backend_names(), "cpu_vector");
    const Selection& selection = (*engine)->selection().at(0).selection;
    EXPECT_THAT(codes(candidate(selection, "careless")), testing::ElementsAre(Reason::kRehearsal));
    EXPECT_THAT((*engine)->notes(), Contains(AllOf(HasSubstr("careless"), HasSubstr("rehearsal without adapters"),
                                                   HasSubstr("differs from cpu_reference"),
                                                   HasSubstr("next admitted backend takes over"))));
    EXPECT_EQ(answers(**engine), reference_answers());
  }
}

TEST(OutOfTree, ABugIsFatalWhereTheBackendIsRequired) {
  const Careless careless;
  const auto engine = Engine::open(options_with(careless, "require careless"));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::kNoBackend);
  EXPECT_THAT(engine.status().message(),
              AllOf(HasSubstr("MoE layer 0"), HasSubstr("careless"), HasSubstr("differs from cpu_reference")));
}

// Without a rehearsal nothing else would have noticed.
TEST(OutOfTree, WithoutRehearsalTheBugRuns) {
  const Careless careless;
  EngineOptions options = options_with(careless, "auto");
  options.rehearse = Rehearse::kOff;
  auto engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->backend_names(), "careless");
  EXPECT_NE(answers(**engine), reference_answers());
}

// An adapter that comes later asks for what this backend refuses: the layer moves to one that admits it.
TEST(OutOfTree, GivesWayToAnAdapter) {
  auto engine = Engine::open(options_with(scalar::backend(), "prefer scalar_silu"));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->backend_names(), "scalar_silu");
  const auto loaded = (*engine)->load_adapter({.name = "elements", .dir = demo("qwen3_moe/adapters/elements")});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ((*engine)->backend_names(), "cpu_vector");
  EXPECT_THAT((*engine)->selection().at(0).selection.warnings,
              Contains(HasSubstr("preferred backend scalar_silu (test) is refused")));
  EXPECT_EQ(answers(**engine), reference_answers());
}

}  // namespace
}  // namespace cadre
