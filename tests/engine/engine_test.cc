// The engine as an embedder uses it: many requests, adapters that come and go, refusals.
#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <map>

#include "support/status_matchers.h"

namespace cadre {
namespace {

std::string golden(const std::string& path) { return std::string(CADRE_GOLDENS) + "/models/" + path; }

EngineOptions options_for(const std::string& model, const std::vector<std::string>& adapters = {}) {
  EngineOptions options;
  options.model_dir = golden(model);
  for (const std::string& name : adapters)
    options.adapters.push_back({.name = name, .dir = golden(model + "/adapters/" + name)});
  options.need_tokenizer = false;
  return options;
}

std::unique_ptr<Engine> open(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

Request ask(std::vector<std::int32_t> ids, const std::string& adapter = "", int max_tokens = 8) {
  Request request;
  request.prompt_ids = std::move(ids);
  request.adapter = adapter;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

std::map<std::uint64_t, std::vector<std::int32_t>> run(Engine& engine) {
  std::map<std::uint64_t, std::vector<std::int32_t>> out;
  while (!engine.idle()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok());
    for (const Event& event : *events) {
      if (event.token) out[event.request].push_back(*event.token);
    }
  }
  return out;
}

std::vector<std::int32_t> one(Engine& engine, const Request& request) {
  const auto id = engine.submit(request);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? run(engine)[*id] : std::vector<std::int32_t>{};
}

std::vector<std::int32_t> prompt(int length, int seed = 1) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back(3 + (i * 37 + seed * 11) % 300);
  return ids;
}

// More requests than sequences, longer prompts than a step holds: each answer is what it is alone.
TEST(Engine, AnswersDoNotDependOnTheMix) {
  for (const char* model : {"qwen3_moe", "nemotron_h", "deepseek_v3"}) {
    EngineOptions small = options_for(model, {"attn", "experts"});
    small.max_num_seqs = 3;
    small.max_num_batched_tokens = 7;
    const auto mixed = open(small), alone = open(options_for(model, {"attn", "experts"}));
    ASSERT_TRUE(mixed != nullptr && alone != nullptr);
    std::map<std::uint64_t, Request> asked;
    for (int i = 0; i < 9; ++i) {
      Request request = ask(prompt(3 + i * 4, i), i % 3 == 0 ? "" : i % 3 == 1 ? "attn" : "experts", 5 + i % 4);
      if (i % 2 == 1) request.sampling.temperature = 0.8;
      request.sampling.seed = 7;
      const auto id = mixed->submit(request);
      ASSERT_TRUE(id.ok()) << id.status().message();
      asked.emplace(*id, request);
    }
    const auto answers = run(*mixed);
    for (const auto& [id, request] : asked)
      EXPECT_EQ(answers.at(id), one(*alone, request)) << model << " request " << id;
  }
}

TEST(Engine, LogprobsAndGreedyAgree) {
  const auto engine = open(options_for("olmoe"));
  ASSERT_NE(engine, nullptr);
  Request request = ask(prompt(5));
  request.sampling.logprobs = 3;
  ASSERT_TRUE(engine->submit(request).ok());
  int tokens = 0;
  while (!engine->idle()) {
    for (const Event& event : *engine->step()) {
      ASSERT_EQ(event.logprobs.size(), 4u);
      EXPECT_EQ(event.logprobs[0].id, *event.token);
      EXPECT_EQ(event.logprobs[1].id, *event.token);  // greedy: the chosen one leads
      EXPECT_GE(event.logprobs[1].logprob, event.logprobs[2].logprob);
      ++tokens;
    }
  }
  EXPECT_EQ(tokens, 8);
}

// An adapter beyond the plan re-selects; a reload keeps running requests on the version they began with.
TEST(Engine, AdaptersComeAndGo) {
  const auto engine = open(options_for("qwen3_moe"));
  const auto planned = open(options_for("qwen3_moe", {"attn", "experts"}));
  ASSERT_TRUE(engine != nullptr && planned != nullptr);
  const std::vector<std::int32_t> base = one(*engine, ask(prompt(6)));
  const std::vector<std::int32_t> attn = one(*planned, ask(prompt(6), "attn"));
  const std::vector<std::int32_t> experts = one(*planned, ask(prompt(6), "experts"));
  ASSERT_NE(base, attn);
  ASSERT_NE(base, experts);

  EXPECT_THAT(engine->submit(ask(prompt(6), "x")).status(), FailsWith(Code::kNotFound, "loaded: none"));
  EXPECT_FALSE(engine->selection().front().deployment.adapters.any());
  const auto first = engine->load_adapter({.name = "x", .dir = golden("qwen3_moe/adapters/attn")});
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_FALSE(engine->selection().front().deployment.adapters.any()) << "attention adapters ask nothing of experts";
  EXPECT_EQ(one(*engine, ask(prompt(6), "x")), attn);

  const auto running = engine->submit(ask(prompt(6), "x"));
  ASSERT_TRUE(running.ok());
  std::vector<std::int32_t> seen;
  for (const Event& event : *engine->step()) seen.push_back(*event.token);
  const auto second = engine->load_adapter({.name = "x", .dir = golden("qwen3_moe/adapters/experts")});
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_GT(second->version, first->version);
  EXPECT_NE(second->digest, first->digest);
  EXPECT_TRUE(engine->selection().front().deployment.adapters.any());
  const auto next = engine->submit(ask(prompt(6), "x"));
  ASSERT_TRUE(next.ok());
  auto rest = run(*engine);
  seen.insert(seen.end(), rest[*running].begin(), rest[*running].end());
  EXPECT_EQ(seen, attn) << "a running request finishes on its version";
  EXPECT_EQ(rest[*next], experts);
  EXPECT_EQ(one(*engine, ask(prompt(6))), base);

  EXPECT_TRUE(engine->unload_adapter("x").ok());
  EXPECT_THAT(engine->submit(ask(prompt(6), "x")).status(), FailsWith(Code::kNotFound, "no adapter is named 'x'"));
  EXPECT_THAT(engine->unload_adapter("x"), FailsWith(Code::kNotFound, "no adapter is named 'x'"));
  EXPECT_EQ(one(*engine, ask(prompt(6))), base);
}

TEST(Engine, CancelAndLimits) {
  EngineOptions options = options_for("mixtral");
  options.max_num_seqs = 1;
  options.max_model_len = 32;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const auto a = engine->submit(ask(prompt(4), "", 20)), b = engine->submit(ask(prompt(4), "", 20));
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(engine->step().ok());
  EXPECT_TRUE(engine->cancel(*a));
  EXPECT_TRUE(engine->cancel(*b));
  EXPECT_FALSE(engine->cancel(12345));
  int cancelled = 0;
  while (!engine->idle()) {
    for (const Event& event : *engine->step()) cancelled += event.finish == FinishReason::kCancelled ? 1 : 0;
  }
  EXPECT_EQ(cancelled, 2);
  EXPECT_EQ(one(*engine, ask(prompt(10), "", 1000)).size(), 22u) << "ends where the context is full";
  EXPECT_THAT(engine->submit(ask(prompt(32))).status(), FailsWith(Code::kLimitExceeded, "the prompt has 32 tokens"));
  EXPECT_THAT(engine->submit(ask({5, 320})).status(), FailsWith(Code::kInvalidArgument, "prompt id 320 at position 1"));
  EXPECT_THAT(engine->submit(ask({})).status(), FailsWith(Code::kInvalidArgument, "the prompt is empty"));
  Request text;
  text.prompt = "hello";
  EXPECT_THAT(engine->submit(text).status(), FailsWith(Code::kInvalidArgument, "without a tokenizer"));
  EXPECT_THAT(engine->submit(Request{}).status(), FailsWith(Code::kInvalidArgument, "exactly one of"));
}

TEST(Engine, Policies) {
  EngineOptions options = options_for("qwen3_moe");
  options.backend = *parse_policy("require cpu_referense", "--backend");
  EXPECT_THAT(Engine::open(options).status(), FailsWith(Code::kInvalidArgument, "did you mean 'cpu_reference'"));
  options.backend = *parse_policy("exclude cpu_reference", "--backend");
  const auto engine = Engine::open(options);
  if (!engine.ok()) {
    EXPECT_THAT(engine.status(), FailsWith(Code::kNoBackend, "the policy: got exclude cpu_reference"));
  }
}

TEST(Engine, MemoryIsForeseen) {
  EngineOptions options = options_for("qwen3_moe");
  options.memory_limit = 100'000;
  EXPECT_THAT(Engine::open(options).status(), FailsWith(Code::kOutOfMemory, "the model needs"));
  options.memory_limit = 2'000'000;  // the weights fit, the cache does not
  EXPECT_THAT(Engine::open(options).status(), FailsWith(Code::kOutOfMemory, "cache"));
  options.memory_limit = 0;
  options.kv_cache_memory = 40'000;
  const auto lowered = open(options);
  ASSERT_NE(lowered, nullptr);
  EXPECT_LT(lowered->max_model_len(), 256);
  ASSERT_EQ(lowered->notes().size(), 1u);
  EXPECT_NE(lowered->notes()[0].find("max_model_len is lowered"), std::string::npos);
  options.max_model_len = 256;
  EXPECT_THAT(Engine::open(options).status(), FailsWith(Code::kOutOfMemory, "one sequence of max_model_len 256"));
}

}  // namespace
}  // namespace cadre
