// Patterns are written for another engine: what is rewritten, what is refused, what a match is.
#include "text/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cadre::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> matches(std::string_view pattern, const std::string& text) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  if (!regex.ok()) return {};
  RegexScratch scratch;
  scratch.start(text.size());
  std::vector<Span> spans;
  const Status status = regex->find_all(text, 0, scratch, spans);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::string> out;
  for (const Span span : spans) out.push_back(text.substr(span.begin, span.end - span.begin));
  return out;
}

TEST(Regex, SpaceIsWhiteSpaceOfUnicode) {
  EXPECT_THAT(matches("\\s",
                      "a\xE1\xA0\x8E"
                      "b"),
              ElementsAre());  // U+180E is none
  EXPECT_THAT(matches("[\\s]",
                      "a\xE1\xA0\x8E"
                      "b"),
              ElementsAre());
  EXPECT_THAT(matches("\\S+",
                      "a\xE1\xA0\x8E"
                      "b c"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b",
                          "c"));
  EXPECT_THAT(matches("[^\\S]",
                      "a\xC2\xA0"
                      "b\x0B"),
              ElementsAre("\xC2\xA0", "\x0B"));
  EXPECT_THAT(matches("\\s+(?!\\S)|\\s+", "a   b "), ElementsAre("  ", " ", " "));
}

TEST(Regex, LinesAreAsInRuby) {
  EXPECT_THAT(matches("^.", "ab\ncd"), ElementsAre("a", "c"));
  EXPECT_THAT(matches(".$", "ab\ncd"), ElementsAre("b", "d"));
  EXPECT_THAT(matches("(?m:b.c)", "ab\ncd"), ElementsAre("b\nc"));
  EXPECT_THAT(matches("\\A.", "ab\ncd"), ElementsAre("a"));
}

TEST(Regex, CaseFoldsBeyondAscii) {
  EXPECT_THAT(matches("(?i:'s|'t)", "'S '\xC5\xBF 't"), ElementsAre("'S", "'\xC5\xBF", "'t"));
}

TEST(Regex, EmptyMatchesAreNotRepeated) {
  EXPECT_THAT(matches("b*", "abbc"), ElementsAre("", "bb", ""));
  EXPECT_THAT(matches("x*", ""), ElementsAre(""));
}

TEST(Regex, ScriptsAreWithoutSharedCharacters) {
  EXPECT_THAT(matches("\\p{Han}+", "\xE4\xBD\xA0\xE3\x80\x82"), ElementsAre("\xE4\xBD\xA0"));
  EXPECT_THAT(matches("[^\\p{Han}]+", "\xE4\xBD\xA0\xE3\x80\x82"), ElementsAre("\xE3\x80\x82"));
}

TEST(Regex, Intersections) {
  EXPECT_THAT(matches("[\\p{L}&&[^\\p{Han}]]+",
                      "ab\xE4\xBD\xA0"
                      "c1"),
              ElementsAre("ab", "c"));
  EXPECT_THAT(matches("x[a-e&&[c-z]]", "xbxcxz"), ElementsAre("xc"));
}

TEST(Regex, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {"a{1,3}+", "[a[bc]]", "[^a&&[b]]", "[a&&b]", "[a&&[b]c]", "\\bword", "[\\W]", "\\Qa\\E",
                              "\\G", "(?s:.)", "\\u12", "(?P<n>a)", "\\k<n>"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.status().code(), Code::kUnsupported) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr("not supported"));
  }
  for (const char* pattern : {"(", "[a", "a\\", "\\p{Nope}", "*", "(?<=a+)b", "[&&[", "[[:nope:]]"}) {
    EXPECT_FALSE(Regex::compile(pattern).ok()) << pattern;
  }
  EXPECT_FALSE(Regex::compile("").ok());
  EXPECT_FALSE(Regex::literal("").ok());
  EXPECT_EQ(Regex::compile(std::string(40'000, 'a')).status().code(), Code::kLimitExceeded);
}

}  // namespace
}  // namespace cadre::text
