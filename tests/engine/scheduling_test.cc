// What serving asks of the engine: memory that runs short, prompts that begin alike, flows that compete, adapters that
// take turns in slots. Whatever happens, answers are those a request gets alone.
#include <cmath>
#include <filesystem>

#include "engine/serving.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

class Scheduling : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Scheduling, ::testing::Values("qwen3_moe", "nemotron_h"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(Scheduling, WhoGivesWayLosesNothing) {
  const std::string model = GetParam();
  for (const bool caching : {true, false}) {
    EngineOptions options = options_for(model, {"attn"});
    options.max_num_seqs = 4;
    options.max_model_len = 96;
    options.enable_prefix_caching = caching;
    const auto roomy = open(options);
    ASSERT_NE(roomy, nullptr);
    // Less and less, until there is room for little more than one sequence of the largest length.
    std::unique_ptr<Engine> tight;
    for (options.kv_cache_memory = roomy->memory().cache; tight == nullptr || tight->memory().cache_tokens > 160;) {
      options.kv_cache_memory = options.kv_cache_memory * 49 / 50;
      tight = open(options);
      ASSERT_NE(tight, nullptr);
    }
    std::map<std::uint64_t, Answer> want;
    for (int i = 0; i < 6; ++i) {
      Request request = ask(prompt(20 + 5 * i, i), i % 2 ? "attn" : "", 50);
      if (i % 3 == 0) {
        request.sampling.temperature = 0.8;
        request.sampling.seed = 17 + i;
      }
      want[submit(*tight, request)] = one(*roomy, request);
    }
    const Answers got = run(*tight);
    EXPECT_GT(tight->stats().preemptions, 0) << "memory was not short";
    EXPECT_EQ(roomy->stats().preemptions, 0);
    for (const auto& [id, answer] : want) {
      ASSERT_TRUE(got.contains(id));
      EXPECT_EQ(got.at(id).ids, answer.ids) << "request " << id << (caching ? " with" : " without") << " a cache";
      EXPECT_EQ(got.at(id).finish, FinishReason::kLength);
    }
    expect_all_returned(*tight);
  }
}

TEST_P(Scheduling, CachedPromptsChangeNoAnswer) {
  EngineOptions options = options_for(GetParam(), {"attn", "experts"});
  const auto cached = open(options);
  options.enable_prefix_caching = false;
  const auto plain = open(options);
  ASSERT_TRUE(cached != nullptr && plain != nullptr);
  const std::vector<std::int32_t> common = prompt(50);
  const auto with_tail = [&](int tail, int seed) {
    auto ids = common;
    for (const std::int32_t id : prompt(tail, seed)) ids.push_back(id);
    return ids;
  };
  std::int64_t hits = 0;
  for (const char* adapter : {"", "attn", "experts", "", "attn", "", "experts"}) {
    for (const int seed : {5, 6, 5}) {
      const Request request = ask(with_tail(20, seed), adapter, 12);
      const Answer got = one(*cached, request), want = one(*plain, request);
      EXPECT_EQ(got.ids, want.ids) << "adapter '" << adapter << "'";
      EXPECT_EQ(want.cached, 0);
      hits += got.cached;
    }
  }
  EXPECT_GT(hits, 21 * 32) << "most of the prompts were known";
  const EngineStats stats = cached->stats();
  EXPECT_EQ(stats.prefix_hits, hits);
  EXPECT_EQ(stats.prefix_queries, 21 * 70);
  EXPECT_EQ(plain->stats().prefix_queries, 0);
  expect_all_returned(*cached);

  // A conversation that goes on starts from where its last prompt ended, at least.
  Answer first = one(*cached, ask(prompt(40, 9), "", 30));
  auto longer = prompt(40, 9);
  longer.insert(longer.end(), first.ids.begin(), first.ids.end());
  longer.push_back(7);
  const Answer second = one(*cached, ask(longer, "", 6));
  EXPECT_GE(second.cached, 32);
  EXPECT_EQ(second.ids, one(*plain, ask(longer, "", 6)).ids);
}

TEST(Scheduling, NothingIsSharedBetweenVersionsOrSalts) {
  const auto engine = open(options_for("qwen3_moe", {"attn"}));
  ASSERT_NE(engine, nullptr);
  const Request base = ask(prompt(40)), adapted = ask(prompt(40), "attn");
  Request mine = base;
  mine.cache_salt = "mine";
  EXPECT_EQ(one(*engine, base).cached, 0);
  EXPECT_EQ(one(*engine, base).cached, 32);
  EXPECT_EQ(one(*engine, adapted).cached, 0);
  EXPECT_EQ(one(*engine, adapted).cached, 32);
  EXPECT_EQ(one(*engine, mine).cached, 0);
  EXPECT_EQ(one(*engine, mine).cached, 32);
  ASSERT_TRUE(engine->load_adapter({.name = "attn", .dir = golden("qwen3_moe/adapters/attn")}).ok());
  EXPECT_EQ(one(*engine, adapted).cached, 0) << "loaded again, even with the same bytes: another version";
  EXPECT_EQ(one(*engine, base).cached, 32);
  const std::int64_t before = engine->stats().pages_cached;
  ASSERT_TRUE(engine->unload_adapter("attn").ok());
  EXPECT_LT(engine->stats().pages_cached, before) << "its pages go with it";
}

// An answer that is generated again takes the pages that hold it already: memory for one sequence is enough.
TEST_P(Scheduling, OneSequenceFitsBesideWhatItsTwinLeft) {
  EngineOptions options = options_for(GetParam());
  options.max_num_seqs = 1;
  options.max_model_len = 160;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  ASSERT_EQ(engine->memory().cache_tokens, 160);
  const Answer first = one(*engine, ask(prompt(3), "", 150));
  EXPECT_EQ(one(*engine, ask(prompt(3), "", 150)).ids, first.ids);
  EXPECT_EQ(one(*engine, ask(prompt(3, 2), "", 150)).ids.size(), 150u);
  EXPECT_EQ(one(*engine, ask(prompt(3), "", 150)).ids, first.ids);
  expect_all_returned(*engine);
}

// Rope that depends on the length makes a key useless to other sequences.
TEST(Scheduling, LengthDependentRopeIsNeitherCachedNorPreempted) {
  EngineOptions options = options_for("mixtral_rope_dynamic");
  options.max_model_len = 64;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const Answer first = one(*engine, ask(prompt(40)));
  const Answer second = one(*engine, ask(prompt(40)));
  EXPECT_EQ(second.cached, 0);
  EXPECT_EQ(first.ids, second.ids);
}

TEST(Scheduling, PrioritiesComeFirst) {
  EngineOptions options = options_for("qwen3_moe");
  options.max_num_seqs = 1;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  Request request = ask(prompt(10), "", 10);
  const std::uint64_t low = submit(*engine, request), second = submit(*engine, request);
  Answers answers;
  step(*engine, &answers);
  ASSERT_EQ(answers[low].ids.size(), 1u);
  request.priority = -1;
  const std::uint64_t urgent = submit(*engine, request);
  const Answers rest = run(*engine);
  EXPECT_EQ(rest.at(urgent).first_step, 0) << "it takes the place of the one that runs";
  EXPECT_LT(rest.at(urgent).last_step, rest.at(low).last_step);
  EXPECT_LT(rest.at(low).last_step, rest.at(second).last_step);
  EXPECT_EQ(engine->stats().preemptions, 1);
  std::vector<std::int32_t> all = answers[low].ids;
  all.insert(all.end(), rest.at(low).ids.begin(), rest.at(low).ids.end());
  EXPECT_EQ(all, rest.at(urgent).ids) << "the same question";
}

// One adapter asks for everything at once; the others still get their first token within a step or two, and the steps
// that bring it are not filled up with the busy adapter's prompts.
TEST(Scheduling, OneBusyFlowDoesNotHoldUpOthers) {
  EngineOptions options = options_for("qwen3_moe", {"attn", "experts"});
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 128;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  for (int i = 0; i < 40; ++i) submit(*engine, ask(prompt(60, i), "attn", 40));
  Answers answers;
  for (int i = 0; i < 10; ++i) step(*engine, &answers, i);
  ASSERT_EQ(engine->stats().running, 8);
  for (int round = 0; round < 5; ++round) {
    const std::int64_t rows = engine->stats().rows;
    const std::uint64_t light = submit(*engine, ask(prompt(20, 100 + round), "experts", 2));
    Answers now;
    step(*engine, &now, 0);
    EXPECT_EQ(now[light].ids.size(), 1u) << "its first token comes with the next step";
    EXPECT_LE(engine->stats().rows - rows, 20 + 32 + 8);
    step(*engine, &now, 1);
  }
  EXPECT_GT(engine->stats().preemptions, 0);
  const Answers rest = run(*engine);
  expect_all_returned(*engine);
  for (const auto& [id, answer] : rest) EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST(Scheduling, AdaptersTakeTurnsInSlotsMemoryAndDisk) {
  const std::vector<std::string> names = {"attn", "experts", "per_expert", "all_linear", "attn_experts"};
  const auto all = open(options_for("qwen3_moe", names));
  EngineOptions options = options_for("qwen3_moe", names);
  options.max_loras = 2;
  options.max_cpu_loras = 3;
  const auto few = open(options);
  ASSERT_TRUE(all != nullptr && few != nullptr);
  std::map<std::uint64_t, std::vector<std::int32_t>> want;
  for (int round = 0; round < 3; ++round) {
    for (const std::string& name : names) {
      const Request request = ask(prompt(12, round), name, 6);
      want[submit(*few, request)] = one(*all, request).ids;
    }
    const Request base = ask(prompt(12, round), "", 6);
    want[submit(*few, base)] = one(*all, base).ids;
  }
  const Answers got = run(*few);
  for (const auto& [id, ids] : want) EXPECT_EQ(got.at(id).ids, ids);
  int in_slots = 0, in_memory = 0;
  for (const AdapterInfo& info : few->adapters()) {
    in_slots += info.slot >= 0 ? 1 : 0;
    in_memory += info.in_memory ? 1 : 0;
  }
  EXPECT_EQ(in_slots, 2);
  EXPECT_EQ(in_memory, 3);
  EXPECT_EQ(few->adapters().size(), 5u);
  EXPECT_EQ(all->stats().slots_used, 5);
  // An adapter without a slot also answers logits.
  for (const std::string& name : names) {
    const auto a = few->logits(prompt(5), name), b = all->logits(prompt(5), name);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(*a, *b);
  }
  expect_all_returned(*few);
}

TEST(Scheduling, AnAdapterThatChangedOnDiskIsNotMixedIn) {
  const fs::path dir = fs::path(::testing::TempDir()) / "cadre_scheduling_disk";
  fs::remove_all(dir);
  fs::create_directories(dir);
  fs::copy(golden("qwen3_moe/adapters/attn"), dir / "a");
  EngineOptions options = options_for("qwen3_moe");
  options.adapters = {{.name = "a", .dir = (dir / "a").string()},
                      {.name = "b", .dir = golden("qwen3_moe/adapters/experts")}};
  options.max_loras = 1;
  options.max_cpu_loras = 1;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(one(*engine, ask(prompt(6), "b")).finish, FinishReason::kLength);
  fs::remove_all(dir / "a");
  fs::copy(golden("qwen3_moe/adapters/all_linear"), dir / "a");
  const Answer changed = one(*engine, ask(prompt(6), "a"));
  EXPECT_EQ(changed.finish, FinishReason::kError);
  EXPECT_THAT(changed.error, FailsWith(Code::kConflict, "adapter 'a' changed on disk"));
  fs::remove_all(dir / "a");
  EXPECT_THAT(one(*engine, ask(prompt(6), "a")).error, FailsWith(Code::kConflict, "adapter 'a'"));
  EXPECT_EQ(one(*engine, ask(prompt(6), "b")).finish, FinishReason::kLength) << "others go on";
  expect_all_returned(*engine);
  fs::remove_all(dir);
}

// Two slots, one held by a stream of requests for each of two adapters: the third gets its turn all the same.
TEST(Scheduling, NoAdapterStarvesForASlot) {
  EngineOptions options = options_for("qwen3_moe", {"attn", "experts", "per_expert"});
  options.max_loras = 1;
  options.max_num_seqs = 4;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  Answers answers;
  for (int i = 0; i < 4; ++i) submit(*engine, ask(prompt(20, i), "attn", 30));
  step(*engine, &answers);
  const std::uint64_t rare = submit(*engine, ask(prompt(20), "experts", 4));
  int steps = 0;
  for (; answers[rare].finish == FinishReason::kNone && steps < 400; ++steps) {
    while (engine->stats().waiting < 3) submit(*engine, ask(prompt(20, steps), "attn", 30));
    step(*engine, &answers, steps);
  }
  EXPECT_LT(steps, 400) << "attn kept its slot for ever";
  EXPECT_EQ(answers[rare].finish, FinishReason::kLength);
  run(*engine);
}

TEST(Scheduling, PinnedAdaptersKeepTheirSlot) {
  EngineOptions options = options_for("qwen3_moe", {"attn", "experts", "per_expert"});
  options.max_loras = 2;
  options.adapters[0].pinned = true;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  for (const char* name : {"experts", "per_expert", "experts", "per_expert"}) {
    EXPECT_EQ(one(*engine, ask(prompt(6), name)).finish, FinishReason::kLength);
    for (const AdapterInfo& info : engine->adapters()) {
      EXPECT_TRUE(info.name != "attn" || info.slot >= 0);
    }
  }
  EXPECT_THAT(engine->load_adapter({.name = "p", .dir = golden("qwen3_moe/adapters/attn"), .pinned = true}).status(),
              FailsWith(Code::kLimitExceeded, "hold pinned adapters"));
}

TEST(Scheduling, PromptLogprobsAreThoseOfTheLogits) {
  EngineOptions options = options_for("qwen3_moe", {"attn"});
  options.max_num_seqs = 2;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const std::vector<std::int32_t> ids = prompt(90);
  const auto logits = engine->logits(ids, "attn");
  ASSERT_TRUE(logits.ok());
  const auto vocab = static_cast<std::size_t>(engine->vocab_size());
  Request request = ask(ids, "attn", 3);
  request.prompt_logprobs = 2;
  one(*engine, ask(ids, "attn"));  // what is cached must not shorten the report
  submit(*engine, ask(prompt(70, 3), "", 20));
  submit(*engine, request);
  const Answers answers = run(*engine);
  const Answer& answer = answers.rbegin()->second;
  ASSERT_EQ(answer.prompt_logprobs.size(), ids.size() - 1);
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const float* row = logits->data() + (i - 1) * vocab;
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]));
    const auto& chances = answer.prompt_logprobs[i - 1];
    ASSERT_EQ(chances.size(), 3u);
    EXPECT_EQ(chances[0].id, ids[i]);
    EXPECT_NEAR(chances[0].logprob, row[ids[i]] - std::log(sum), 1e-4);
    EXPECT_GE(chances[1].logprob, chances[2].logprob);
  }
  request.prompt_logprobs = -1;
  EXPECT_THAT(engine->submit(request).status(), FailsWith(Code::kInvalidArgument, "prompt_logprobs is -1"));
}

TEST(Scheduling, ChoicesDifferAndDeadlinesEnd) {
  EngineOptions options = options_for("qwen3_moe");
  options.max_num_seqs = 2;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  Request request = ask(prompt(8), "", 12);
  request.sampling.temperature = 1;
  request.sampling.seed = 3;
  const Answer zero = one(*engine, request);
  EXPECT_EQ(one(*engine, request).ids, zero.ids);
  request.choice = 1;
  EXPECT_NE(one(*engine, request).ids, zero.ids);

  request.timeout_s = 1e-9;
  const std::uint64_t late = submit(*engine, request);
  const Answers answers = run(*engine);
  EXPECT_EQ(answers.at(late).finish, FinishReason::kCancelled);
  EXPECT_THAT(answers.at(late).error, FailsWith(Code::kCancelled, "the request's time"));
  request.timeout_s = -1;
  EXPECT_THAT(engine->submit(request).status(), FailsWith(Code::kInvalidArgument, "timeout_s is -1"));
}

TEST(Scheduling, AVersionThatIsHeldStaysUsable) {
  const auto engine = open(options_for("qwen3_moe", {"attn"}));
  ASSERT_NE(engine, nullptr);
  auto held = engine->find_adapter("attn");
  ASSERT_TRUE(held.ok());
  const std::vector<std::int32_t> attn = one(*engine, ask(prompt(6), "attn")).ids;
  ASSERT_TRUE(engine->load_adapter({.name = "attn", .dir = golden("qwen3_moe/adapters/experts")}).ok());
  const std::vector<std::int32_t> replaced = one(*engine, ask(prompt(6), "attn")).ids;
  EXPECT_NE(replaced, attn);
  ASSERT_TRUE(engine->unload_adapter("attn").ok());
  Request request = ask(prompt(6));
  request.version = *held;
  EXPECT_EQ(one(*engine, request).ids, attn);
  request.version = nullptr;
  held = AdapterRef();
  EXPECT_EQ(one(*engine, ask(prompt(6))).finish, FinishReason::kLength);
  EXPECT_EQ(engine->stats().slots_used, 0) << "the last holder is gone";
}

TEST(Scheduling, TimesOfBackendsAreCounted) {
  const auto engine = open(options_for("qwen3_moe"));
  ASSERT_NE(engine, nullptr);
  one(*engine, ask(prompt(6), "", 4));
  const EngineStats stats = engine->stats();
  ASSERT_EQ(stats.backends.size(), 1u);
  EXPECT_EQ(stats.backends[0].backend, engine->backend_names());
  EXPECT_EQ(stats.backends[0].calls % stats.steps, 0);
  EXPECT_GE(stats.backends[0].calls, stats.steps);
  EXPECT_GT(stats.backends[0].seconds, 0);
  EXPECT_EQ(stats.prompt_tokens, 6);
  EXPECT_EQ(stats.generated_tokens, 4);
}

}  // namespace
}  // namespace cadre::test
