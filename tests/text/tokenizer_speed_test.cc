// Loading a vocabulary of today's size, encoding ordinary text, and texts made to be slow. The limits leave room for a
// busy machine and for sanitizers; bench/tokenizer_bench prints the figures.
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer_synthetic.h"

namespace cadre {
namespace {

double seconds_of(const std::function<void()>& work) {
  // Of the processor, so that other work on the machine does not count. Nothing here uses a second thread.
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Sanitizers and missing optimisation make everything some ten times slower.
#if defined(__has_feature)
#define CADRE_HAS_FEATURE(name) __has_feature(name)
#else
#define CADRE_HAS_FEATURE(name) 0
#endif
#if defined(__OPTIMIZE__) && !CADRE_HAS_FEATURE(address_sanitizer) && !CADRE_HAS_FEATURE(thread_sanitizer) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kSlack = 1;
#else
constexpr double kSlack = 20;
#endif

class TokenizerSpeed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string json = synthetic::tokenizer_json(200'000);
    load_seconds = seconds_of([&] {
      auto loaded = Tokenizer::from_json(json, "synthetic");
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      tokenizer = std::move(loaded).value();
    });
  }
  static void TearDownTestSuite() { tokenizer.reset(); }

  double encode_seconds(const std::string& text) {
    return seconds_of([&] {
      const auto ids = tokenizer->encode(text, true);
      ASSERT_TRUE(ids.ok()) << ids.status().message();
      EXPECT_EQ(tokenizer->decode(*ids, false), text);
    });
  }

  static std::unique_ptr<Tokenizer> tokenizer;
  static double load_seconds;
};
std::unique_ptr<Tokenizer> TokenizerSpeed::tokenizer;
double TokenizerSpeed::load_seconds = 0;

TEST_F(TokenizerSpeed, LoadsTwoHundredThousandTokens) {
  EXPECT_EQ(tokenizer->vocab_size(), 200'001U);
  EXPECT_LT(load_seconds, 1 * kSlack);
}

TEST_F(TokenizerSpeed, EncodesText) {
  const std::string text = synthetic::text(4'000'000);
  EXPECT_LT(encode_seconds(text), 4.0 / 5 * kSlack);  // decoding included
}

// Work that grew with the square of the length would take hours for some of these.
TEST_F(TokenizerSpeed, LongPiecesAreNotQuadratic) {
  constexpr std::size_t kBytes = 1'000'000;
  synthetic::Random random(3);
  std::string letters;
  std::string marks;
  std::string mixed;
  while (letters.size() < kBytes) letters += static_cast<char>('a' + random.below(26));
  while (marks.size() < kBytes) marks += random.below(2) == 0 ? "\xCC\x81" : "\xCC\x96";
  while (mixed.size() < kBytes) mixed += random.below(2) == 0 ? "\n" : " ";
  for (const std::string& text :
       {std::string(kBytes, 'a'), letters, marks, mixed, std::string(kBytes, ' '), std::string(kBytes, ' ') + "x",
        std::string(kBytes, '\n') + "x", std::string(kBytes, '\''), std::string(kBytes, '<')}) {
    SCOPED_TRACE(text.substr(0, 8));
    EXPECT_LT(encode_seconds(text), 4 * kSlack);
  }
}

// Runs of combining marks in the wrong order are sorted, not bubbled.
TEST(TokenizerSpeedNfc, MarksOutOfOrder) {
  const auto loaded = Tokenizer::load(CADRE_GOLDENS "/tokenizers/qwen2");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  std::string text = "e";
  for (int i = 0; i < 300'000; ++i) text += i % 2 == 0 ? "\xCC\x81" : "\xCC\x96";
  EXPECT_LT(seconds_of([&] { EXPECT_TRUE((*loaded)->encode(text, true).ok()); }), 2 * kSlack);
}

}  // namespace
}  // namespace cadre
