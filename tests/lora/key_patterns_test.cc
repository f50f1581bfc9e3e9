#include "lora/key_patterns.h"

#include <gtest/gtest.h>

#include <chrono>

#include "support/status_matchers.h"

namespace cadre {
namespace {

// The first key that matches, or "".
std::string match(const std::vector<std::string>& keys, const std::string& name) {
  const auto patterns = KeyPatterns::compile(keys, "rank_pattern");
  EXPECT_THAT(patterns, Succeeds());
  if (!patterns.ok()) return "?";
  const auto found = patterns->first_match(name);
  EXPECT_THAT(found, Succeeds());
  return found.ok() && *found ? keys[**found] : "";
}

TEST(KeyPatterns, AnchoredAtAPartAndAtTheEnd) {
  const std::string name = "model.layers.1.self_attn.q_proj";
  for (const char* key : {"q_proj", "self_attn.q_proj", "layers.1.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                          "^model.layers.1.self_attn.q_proj", ".*q_proj", "layers.*q_proj", ".*\\.q_proj", "(q|k)_proj",
                          "layers\\.\\d+\\.self_attn\\.q_proj", "[qv]_proj", "q_proj$", "", "self_attn.q.proj"}) {
    const std::string want = key == std::string() ? "" : key;
    EXPECT_EQ(match({key}, name), want) << key;
  }
  for (const char* key : {"proj", "_proj", "q_pro", "attn.q_proj", "q_proj.x", "model", "^layers.1.self_attn.q_proj",
                          "k_proj", "self_attn", "xmodel.layers.1.self_attn.q_proj", "Q_proj"}) {
    EXPECT_EQ(match({key}, name), "") << key;
  }
}

TEST(KeyPatterns, TheFirstInTheFileWins) {
  EXPECT_EQ(match({"q_proj", "layers.0.q_proj"}, "layers.0.q_proj"), "q_proj");
  EXPECT_EQ(match({"layers.0.q_proj", "q_proj"}, "layers.0.q_proj"), "layers.0.q_proj");
  EXPECT_EQ(match({".*q_proj", "q_proj"}, "layers.0.q_proj"), ".*q_proj");
  EXPECT_EQ(match({"q_proj", ".*q_proj"}, "layers.0.q_proj"), "q_proj");
  EXPECT_EQ(match({"k_proj", ".*v_proj", "0.q_proj", ".*q_proj", "q_proj"}, "layers.0.q_proj"), "0.q_proj");
}

// A dot matches any character, in plain names too.
TEST(KeyPatterns, DotsAreWild) {
  EXPECT_EQ(match({"self.attn"}, "model.self_attn"), "self.attn");
  EXPECT_EQ(match({"experts.0.down_proj"}, "mlp.experts.0.down_proj"), "experts.0.down_proj");
  EXPECT_EQ(match({"experts.0.down_proj"}, "mlp.experts.10.down_proj"), "");
  EXPECT_EQ(match({"1.down_proj"}, "mlp.experts.11.down_proj"), "");
}

// PEFT falls back on the name itself as a key, whatever it means as an expression.
TEST(KeyPatterns, TheNameItself) {
  EXPECT_EQ(match({"a+b"}, "a+b"), "a+b");
  EXPECT_EQ(match({"a+b"}, "x.a+b"), "");
  EXPECT_EQ(match({"a+b"}, "x.aab"), "a+b");
}

TEST(KeyPatterns, BadExpressionsAreRefused) {
  EXPECT_THAT(KeyPatterns::compile({"q_proj", "(q_proj"}, "rank_pattern"),
              FailsWith(Code::kInvalidFile, "rank_pattern: key '(q_proj' is not a regular expression: "));
  EXPECT_THAT(KeyPatterns::compile({std::string(2000, 'x')}, "rank_pattern"),
              FailsWith(Code::kLimitExceeded, "has 2000 bytes, want at most 1000"));
  EXPECT_THAT(KeyPatterns::compile({std::string(400, '(') + std::string(400, ')')}, "rank_pattern"),
              FailsWith(Code::kInvalidFile, "is not a regular expression"));
  EXPECT_THAT(KeyPatterns::compile(std::vector<std::string>(300, ".*"), "rank_pattern"),
              FailsWith(Code::kLimitExceeded, "more than 256 regular expressions; write full module names instead"));
}

TEST(KeyPatterns, CostlyExpressionsEnd) {
  const std::string name = "model.layers.0." + std::string(60, 'a') + "!";
  for (const char* key : {"(a+)+", "(a|aa)+b", "(.*)*(.*)*x", "(?:(?:a*)*)*b"}) {
    const auto patterns = KeyPatterns::compile({key}, "alpha_pattern");
    ASSERT_THAT(patterns, Succeeds());
    const auto begin = std::chrono::steady_clock::now();
    const auto found = patterns->first_match(name);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2)) << key;
    if (!found.ok()) {
      EXPECT_THAT(found, FailsWith(Code::kLimitExceeded, "write a simpler expression")) << key;
    }
  }
  const auto patterns = KeyPatterns::compile({"(a+)+"}, "alpha_pattern");
  EXPECT_THAT(patterns->first_match(name), FailsWith(Code::kLimitExceeded, "alpha_pattern: key '(a+)+' on module"));
}

}  // namespace
}  // namespace cadre
