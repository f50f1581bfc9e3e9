#include "engine/sampling/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/sampling_reference.h"

namespace cadre {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Logprobs, EqualTheReference) {
  test::Random random(11);
  for (int round = 0; round < 200; ++round) {
    const std::int32_t vocab = 1 + random.below(500);
    std::vector<float> logits = random.logits(static_cast<std::size_t>(vocab), random.between(0.1, 30));
    if (round % 2 == 0) {
      for (float& x : logits) x = std::round(x);
    }
    const std::int32_t chosen = random.below(vocab);
    const std::int32_t count = random.below(30);
    const Logprobs got = token_logprobs(logits, chosen, count).value();

    double total = 0;
    for (const float x : logits) total += std::exp(static_cast<double>(x));
    const auto want = [&](std::size_t id) { return static_cast<double>(logits[id]) - std::log(total); };
    EXPECT_EQ(got.chosen.id, chosen);
    EXPECT_NEAR(got.chosen.logprob, want(static_cast<std::size_t>(chosen)),
                1e-5 * (1 + std::abs(want(static_cast<std::size_t>(chosen)))));
    EXPECT_EQ(got.rank, 1 + std::count_if(logits.begin(), logits.end(), [&](float x) { return x > logits[chosen]; }));

    const std::vector<std::size_t> order = test::falling(logits);
    ASSERT_EQ(got.top.size(), static_cast<std::size_t>(std::min(count, vocab)));
    for (std::size_t i = 0; i < got.top.size(); ++i) {
      EXPECT_EQ(static_cast<std::size_t>(got.top[i].id), order[i]);
      EXPECT_NEAR(got.top[i].logprob, want(order[i]), 1e-5 * (1 + std::abs(want(order[i]))));
    }
  }
}

TEST(Logprobs, KnownValues) {
  const std::vector<float> even(4, 1e30f);
  const Logprobs got = token_logprobs(even, 2, 1).value();
  EXPECT_FLOAT_EQ(got.chosen.logprob, -std::log(4.0f));
  EXPECT_EQ(got.rank, 1);
  EXPECT_EQ(got.top[0].id, 0);
}

TEST(Logprobs, MaskedTokens) {
  const std::vector<float> logits = {1, -kInfinity, 1};
  const Logprobs got = token_logprobs(logits, 1, 3).value();
  EXPECT_EQ(got.chosen.logprob, -kInfinity);
  EXPECT_EQ(got.rank, 3);
  ASSERT_EQ(got.top.size(), 2u);
  EXPECT_FLOAT_EQ(got.top[1].logprob, -std::log(2.0f));
}

TEST(Logprobs, Refuses) {
  const std::vector<float> logits = {1, std::nanf("")};
  EXPECT_EQ(token_logprobs(logits, 0, 0).status().message().find("the logit of token 1 is"), 0u);
  EXPECT_EQ(token_logprobs(logits, 2, 0).status().message(),
            "logprobs of token 2, want an id of at least 0 and below 2");
  EXPECT_FALSE(token_logprobs(logits, -1, 0).ok());
}

}  // namespace
}  // namespace cadre
