// A vocabulary of 256k must not cost more than a few milliseconds a token. The best of many runs, so that a busy
// machine does not matter; skipped where the compiler was told not to be fast.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <limits>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling_reference.h"

namespace cadre {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CADRE_TEST_SANITIZED 1
#endif
#endif
#if !defined(NDEBUG) || defined(CADRE_TEST_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kTimed = false;
#else
constexpr bool kTimed = true;
#endif

constexpr std::size_t kVocab = 256 * 1024;

template <class Run>
double best_ms(const std::vector<float>& logits, const Run& run) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<float> row(logits.size());
  for (std::uint64_t i = 0; i < 25; ++i) {
    std::copy(logits.begin(), logits.end(), row.begin());
    const auto start = std::chrono::steady_clock::now();
    run(row, i);
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void expect_within(const char* name, const std::vector<float>& logits, const SamplingParams& params, double limit_ms) {
  const double ms = best_ms(logits, [&](std::vector<float>& row, std::uint64_t position) {
    ASSERT_TRUE(sample(row, params, {}, position, 0).ok());
  });
  std::printf("%-28s %7.3f ms\n", name, ms);
  EXPECT_LT(ms, limit_ms) << name;
}

TEST(SamplingSpeed, LargeVocabulary) {
  if (!kTimed) GTEST_SKIP() << "not an optimised build without sanitizers";
  test::Random random(1);
  const std::vector<float> peaked = random.logits(kVocab, 3);
  const std::vector<float> flat = random.logits(kVocab, 0.01);
  SamplingParams params;
  expect_within("greedy", peaked, params, 3);
  params.temperature = 0.8;
  params.seed = 1;
  expect_within("temperature", peaked, params, 10);
  expect_within("temperature, flat", flat, params, 10);
  params.top_p = 0.95;
  expect_within("top_p", peaked, params, 10);
  expect_within("top_p, flat", flat, params, 10);
  params.min_p = 0.05;
  expect_within("top_p min_p", peaked, params, 10);
  params.min_p = 0;
  params.top_k = 50;
  expect_within("top_k top_p", peaked, params, 3);
  expect_within("top_k top_p, flat", flat, params, 3);
  std::vector<float> outlier = peaked;  // leaves all other tokens in one bucket
  outlier[7] = 1000;
  expect_within("top_k top_p, outlier", outlier, params, 10);
  params.top_k = 0;
  expect_within("top_p, outlier", outlier, params, 10);
  const double ms =
      best_ms(peaked, [](std::vector<float>& row, std::uint64_t) { ASSERT_TRUE(token_logprobs(row, 5, 20).ok()); });
  std::printf("%-28s %7.3f ms\n", "logprobs", ms);
  EXPECT_LT(ms, 10);
}

}  // namespace
}  // namespace cadre
