// Requests that begin alike and come at the same time: one computes, the others start from what it left.
#include "engine/serving.h"

namespace cadre::test {
namespace {

class Twins : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Twins, ::testing::Values("qwen3_moe", "nemotron_h"),
                         [](const auto& model) { return std::string(model.param); });

Request choice(int length, std::uint32_t number, const std::string& adapter = "") {
  Request request = ask(prompt(length), adapter, 6);
  request.sampling.temperature = 0.9;
  request.sampling.seed = 5;
  request.choice = number;
  return request;
}

TEST_P(Twins, ChoicesComputeTheirPromptOnce) {
  EngineOptions options = options_for(GetParam(), {"attn"});
  options.max_num_batched_tokens = 40;  // the prompt takes several steps
  const auto engine = open(options);
  options.enable_prefix_caching = false;
  const auto plain = open(options);
  ASSERT_TRUE(engine != nullptr && plain != nullptr);
  for (const char* adapter : {"", "attn"}) {
    const std::int64_t before = engine->stats().prompt_tokens, plain_before = plain->stats().prompt_tokens;
    std::map<std::uint64_t, std::uint64_t> same;
    for (std::uint32_t i = 0; i < 4; ++i) {
      same[submit(*engine, choice(100, i, adapter))] = submit(*plain, choice(100, i, adapter));
    }
    const Answers got = run(*engine), want = run(*plain);
    for (const auto& [id, plain_id] : same) EXPECT_EQ(got.at(id).ids, want.at(plain_id).ids);
    EXPECT_EQ(got.begin()->second.cached, 0);
    EXPECT_EQ(got.rbegin()->second.cached, 96);
    EXPECT_EQ(engine->stats().prompt_tokens - before, 100 + 3 * 4);
    EXPECT_EQ(plain->stats().prompt_tokens - plain_before, 4 * 100);
  }
  expect_all_returned(*engine);
}

// Another adapter, salt or tenant shares nothing, and short prompts have no whole page: nobody waits.
TEST_P(Twins, OthersDoNotWait) {
  const auto engine = open(options_for(GetParam(), {"attn"}));
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests = {choice(100, 0), choice(100, 0, "attn"), choice(100, 0),
                                   choice(100, 0), choice(16, 0),          choice(16, 1)};
  requests[2].cache_salt = "salt";
  requests[3].tenant = "other";
  requests[3].cache_salt = "other";
  for (const Request& request : requests) submit(*engine, request);
  Answers answers;
  step(*engine, &answers);
  EXPECT_EQ(engine->stats().running, 6);
  run(*engine);
  expect_all_returned(*engine);
}

// While shorter prompts of the same beginning keep coming, one that came before them is not kept waiting by them.
TEST_P(Twins, LaterOnesAreNotWaitedFor) {
  EngineOptions options = options_for(GetParam());
  options.max_num_batched_tokens = 8;
  options.max_num_seqs = 4;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  Answers answers;
  std::uint32_t number = 0;
  const auto shorter = [&] { return submit(*engine, choice(32, ++number)); };
  for (int i = 0; i < 3; ++i) shorter();
  const std::uint64_t longer = submit(*engine, choice(33, 0));
  int steps = 0;
  for (; answers[longer].ids.empty() && steps < 200; ++steps) {
    shorter();
    step(*engine, &answers, steps);
  }
  EXPECT_LT(steps, 100);
}

// The one that computes goes away half-way: the next takes over.
TEST_P(Twins, TheOneThatComputesMayGo) {
  EngineOptions options = options_for(GetParam());
  options.max_num_batched_tokens = 32;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const std::uint64_t first = submit(*engine, choice(100, 0)), second = submit(*engine, choice(100, 1)),
                      third = submit(*engine, choice(100, 2));
  Answers answers;
  step(*engine, &answers);
  EXPECT_EQ(engine->stats().running, 1);
  ASSERT_TRUE(engine->cancel(first));
  for (int i = 1; !engine->idle(); ++i) step(*engine, &answers, i);
  EXPECT_EQ(answers[first].finish, FinishReason::kCancelled);
  EXPECT_EQ(answers[second].ids, one(*engine, choice(100, 1)).ids);
  EXPECT_EQ(answers[third].ids, one(*engine, choice(100, 2)).ids);
  EXPECT_EQ(answers[third].cached, 96);
  expect_all_returned(*engine);
}

// A prompt whose probabilities are wanted is computed as a whole, and waits for nobody.
TEST_P(Twins, PromptLogprobsAreComputedByEach) {
  const auto engine = open(options_for(GetParam()));
  ASSERT_NE(engine, nullptr);
  for (std::uint32_t i = 0; i < 2; ++i) {
    Request request = choice(40, i);
    request.prompt_logprobs = 1;
    submit(*engine, request);
  }
  Answers answers;
  step(*engine, &answers);
  EXPECT_EQ(engine->stats().running, 2);
  for (const auto& [id, answer] : run(*engine)) EXPECT_EQ(answer.cached, 0);
}

}  // namespace
}  // namespace cadre::test
