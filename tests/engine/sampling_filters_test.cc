// Every step of sampling against the plain reference, and the corners that random cases do not reach.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/sampling/philox.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling_reference.h"

namespace cadre {
namespace {

using test::Random;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int32_t drawn(std::vector<float> logits, const SamplingParams& params, std::uint64_t position = 0,
                   const TokenHistory& history = {}) {
  const Result<std::int32_t> token = sample(logits, params, history, position, 0);
  EXPECT_TRUE(token.ok()) << token.status().message();
  return token.ok() ? *token : -1;
}

SamplingParams at(double temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = 7;
  return params;
}

std::set<std::int32_t> support(const std::vector<float>& logits, const SamplingParams& params, int draws = 2000) {
  std::set<std::int32_t> tokens;
  for (int i = 0; i < draws; ++i) tokens.insert(drawn(logits, params, static_cast<std::uint64_t>(i)));
  return tokens;
}

using Set = std::set<std::int32_t>;

struct Case {
  const char* name;
  bool top_k, top_p, min_p, penalties, bias;
};

class Filters : public testing::TestWithParam<Case> {};

TEST_P(Filters, EqualTheReference) {
  const Case& steps = GetParam();
  Random random(2024);
  int different_from_greedy = 0;
  for (int round = 0; round < 150; ++round) {
    const auto vocab = 2 + random.below(round % 10 == 0 ? 3000 : 300);
    std::vector<float> logits = random.logits(static_cast<std::size_t>(vocab), random.between(0.1, 6));
    if (round % 3 == 0) {  // many equal logits
      for (float& x : logits) x = std::round(x * 2) / 2;
    }
    if (round % 7 == 0) logits[random.below(vocab)] = -1e30f;
    SamplingParams params = at(random.between(0.05, 3));
    params.seed = static_cast<std::uint64_t>(round);
    if (steps.top_k) params.top_k = 1 + random.below(vocab + 5);
    if (steps.top_p) params.top_p = random.between(0.01, 1);
    if (steps.min_p) params.min_p = random.between(0, 0.9);
    std::vector<std::int32_t> prompt;
    std::vector<std::int32_t> output;
    TokenHistory history;
    if (steps.penalties) {
      params.repetition_penalty = random.between(0.5, 2);
      params.presence_penalty = random.between(-2, 2);
      params.frequency_penalty = random.between(-2, 2);
      for (int i = 0; i < 20; ++i) prompt.push_back(random.below(vocab));
      for (int i = 0; i < 20; ++i) output.push_back(random.below(vocab));
      history.add_prompt(prompt);
      for (const std::int32_t id : output) history.add_generated(id);
    }
    if (steps.bias) {
      for (int i = 0; i < 5; ++i) params.logit_bias[random.below(vocab)] = static_cast<float>(random.between(-9, 9));
    }
    const std::vector<double> p = test::reference_distribution(logits, params, prompt, output);
    std::int32_t first = -1;
    for (std::uint64_t position = 0; position < 20; ++position) {
      const std::int32_t got = drawn(logits, params, position, history);
      ASSERT_EQ(got, test::reference_draw(p, uniform_at(*params.seed, 0, position)))
          << "round " << round << " position " << position << " vocab " << vocab;
      ASSERT_GT(p[got], 0);
      if (first < 0) first = got;
      different_from_greedy += got != first;
    }
  }
  EXPECT_GT(different_from_greedy, 100);  // the cases do draw
}

INSTANTIATE_TEST_SUITE_P(
    Steps, Filters,
    testing::Values(Case{"none", false, false, false, false, false}, Case{"top_k", true, false, false, false, false},
                    Case{"top_p", false, true, false, false, false}, Case{"min_p", false, false, true, false, false},
                    Case{"penalties", false, false, false, true, false}, Case{"bias", false, false, false, false, true},
                    Case{"top_k_top_p", true, true, false, false, false},
                    Case{"top_p_min_p", false, true, true, false, false}, Case{"all", true, true, true, true, true}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  SamplingParams greedy;
  EXPECT_EQ(drawn({1, 3, 3, 2, 3}, greedy), 1);
  EXPECT_EQ(drawn({-0.0f, 0.0f}, greedy), 0);
  EXPECT_EQ(drawn({-5, -kInfinity, -4}, greedy), 2);
  EXPECT_EQ(drawn({-3e38f}, greedy), 0);
}

TEST(Sampler, TopKKeepsExactlyKWithLowIdsFirst) {
  SamplingParams params = at(1);
  params.top_k = 1;
  EXPECT_EQ(support({1, 3, 3, 3}, params), (Set{1}));
  params.top_k = 2;
  EXPECT_EQ(support({1, 3, 3, 3}, params), (Set{1, 2}));
  params.top_k = 4;
  EXPECT_EQ(support({1, 3, 3, 3}, params), (Set{0, 1, 2, 3}));
  for (const std::int32_t off : {0, -1, 100}) {
    params.top_k = off;
    EXPECT_EQ(support({1, 3, 3, 3}, params), (Set{0, 1, 2, 3}));
  }
  params.top_k = 3;
  EXPECT_EQ(support({1, -kInfinity, 1, -kInfinity, -kInfinity}, params), (Set{0, 2}));
}

TEST(Sampler, TopPKeepsTheTokenThatReachesIt) {
  const std::vector<float> halves = {std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
  SamplingParams params = at(1);
  const auto kept = [&](double top_p) {
    params.top_p = top_p;
    return support(halves, params);
  };
  EXPECT_EQ(kept(0), (Set{0}));
  EXPECT_EQ(kept(0.49), (Set{0}));
  EXPECT_EQ(kept(0.51), (Set{0, 1}));
  EXPECT_EQ(kept(0.76), (Set{0, 1, 2}));
  EXPECT_EQ(kept(0.88), (Set{0, 1, 2, 3}));
  EXPECT_EQ(kept(1), (Set{0, 1, 2, 3}));
  // Equal logits: exact arithmetic, so the border itself is known.
  params.top_p = 0.5;
  EXPECT_EQ(support({2, 2, 2, 2}, params), (Set{0, 1}));
  params.top_k = 3;
  params.top_p = 0.25;
  EXPECT_EQ(support({2, 2, 2, 2}, params), (Set{0}));
  params.top_p = 0.5;  // of the three that top_k left
  EXPECT_EQ(support({2, 2, 2, 2}, params), (Set{0, 1}));
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  const std::vector<float> logits = {0, std::log(0.5f), std::log(0.1f), 0};
  SamplingParams params = at(1);
  params.min_p = 0.45;
  EXPECT_EQ(support(logits, params), (Set{0, 1, 3}));
  params.min_p = 0.55;
  EXPECT_EQ(support(logits, params), (Set{0, 3}));
  params.min_p = 1;
  EXPECT_EQ(support(logits, params), (Set{0, 3}));
  params.top_k = 3;
  EXPECT_EQ(support(logits, params), (Set{0, 3}));
  params.top_k = 0;
  params.min_p = 0.45;
  params.temperature = 0.5;  // min_p sees the distribution after temperature: 1, 0.25, 0.01, 1
  EXPECT_EQ(support(logits, params), (Set{0, 3}));
}

TEST(Sampler, ExtremeTemperatures) {
  const std::vector<float> logits = {1, 2, 5, 3};
  for (const double cold : {1e-3, 1e-30, 1e-300, 5e-324}) EXPECT_EQ(support(logits, at(cold), 50), (Set{2})) << cold;
  for (const double hot : {1e6, 1e300}) {
    EXPECT_EQ(support(logits, at(hot)), (Set{0, 1, 2, 3})) << hot;
  }
  EXPECT_EQ(support({3e38f, -3e38f}, at(1), 50), (Set{0}));
  SamplingParams params = at(5e-324);
  params.top_k = 2;
  params.top_p = 0.5;
  EXPECT_EQ(support(logits, params, 50), (Set{2}));
}

TEST(Sampler, RepetitionPenaltyCoversPromptAndOutput) {
  SamplingParams params;
  params.repetition_penalty = 2;
  TokenHistory history;
  history.add_prompt(std::vector<std::int32_t>{0, 0, 0});
  history.add_generated(1);
  // 4/2, 3/2, -1, 1.9: positive logits are divided, once however often the token appears.
  EXPECT_EQ(drawn({4, 3, -1, 1.9f}, params, 0, history), 0);
  EXPECT_EQ(drawn({4, 3, -1, 2.1f}, params, 0, history), 3);
  // Negative ones are multiplied: -2, -4, -1.5.
  EXPECT_EQ(drawn({-1, -2, -1.5f}, params, 0, history), 2);
}

TEST(Sampler, PresenceAndFrequencyCoverTheOutputOnly) {
  TokenHistory history;
  history.add_prompt(std::vector<std::int32_t>{0});
  history.add_generated(1);
  history.add_generated(1);
  history.add_generated(1);
  history.add_generated(2);
  SamplingParams params;
  params.presence_penalty = 1;
  EXPECT_EQ(drawn({5, 5.5f, 5.9f}, params, 0, history), 0);
  EXPECT_EQ(drawn({5, 6.5f, 5.9f}, params, 0, history), 1);
  params.presence_penalty = 0;
  params.frequency_penalty = 1;  // 5, 7.5 - 3, 6.5 - 1
  EXPECT_EQ(drawn({5, 7.5f, 6.5f}, params, 0, history), 2);
  params.frequency_penalty = -1;
  EXPECT_EQ(drawn({5, 2.5f, 3.9f}, params, 0, history), 1);
}

TEST(Sampler, BiasComesBeforePenalties) {
  SamplingParams params;
  params.logit_bias = {{0, 2.0f}};
  params.repetition_penalty = 2;
  TokenHistory history;
  history.add_prompt(std::vector<std::int32_t>{0});
  // (-1 + 2) / 2 = 0.5, where the other order would give -2 + 2 = 0.
  EXPECT_EQ(drawn({-1, 0.4f}, params, 0, history), 0);
  EXPECT_EQ(drawn({-1, 0.6f}, params, 0, history), 1);
  params = {};
  params.logit_bias = {{1, 100.0f}};
  EXPECT_EQ(drawn({3e38f, 3.4028235e38f}, params), 1);
}

TEST(Sampler, EndTokensAreMaskedBelowMinTokens) {
  SamplingParams params;
  params.min_tokens = 2;
  params.eos_token_ids = {0, 999};  // a file may name a token that the model has not
  params.stop_token_ids = {1};
  TokenHistory history;
  const std::vector<float> logits = {9, 8, 1};
  EXPECT_EQ(drawn(logits, params, 0, history), 2);
  history.add_generated(2);
  params.logit_bias = {{0, 50.0f}};  // does not unmask
  EXPECT_EQ(drawn(logits, params, 1, history), 2);
  history.add_generated(2);
  EXPECT_EQ(drawn(logits, params, 2, history), 0);
}

TEST(Sampler, IdsOutsideTheRowArePassedOver) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.logit_bias = {{-5, 1.0f}, {50, 1.0f}};
  TokenHistory history;
  history.add_prompt(std::vector<std::int32_t>{-1, 1 << 30});
  EXPECT_EQ(drawn({1, 2}, params, 0, history), 1);
}

TEST(Sampler, RefusesWhatHasNoAnswer) {
  const auto message = [](std::vector<float> logits, const SamplingParams& params) {
    const Result<std::int32_t> token = sample(logits, params, {}, 0, 0);
    return token.ok() ? "token " + std::to_string(*token) : token.status().message();
  };
  for (const SamplingParams& params : {SamplingParams{}, at(1)}) {
    EXPECT_EQ(message({1, 2, std::nanf("")}, params).find("the logit of token 2 is"), 0u);
    EXPECT_EQ(message({1, kInfinity, 2}, params).find("the logit of token 1 is inf, want a finite number"), 0u);
    EXPECT_EQ(message({-kInfinity, -kInfinity}, params).find("none of 2 tokens can be chosen"), 0u);
    EXPECT_EQ(message({}, params).find("none of 0 tokens can be chosen"), 0u);
  }
  SamplingParams unseeded;
  unseeded.temperature = 1;
  EXPECT_EQ(message({1, 2}, unseeded).find("temperature is 1 and seed is not set, want a seed"), 0u);
  SamplingParams stuck;
  stuck.min_tokens = 1;
  stuck.eos_token_ids = {0};
  EXPECT_EQ(message({1}, stuck).find("none of 1 tokens can be chosen"), 0u);
}

}  // namespace
}  // namespace cadre
