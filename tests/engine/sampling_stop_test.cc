#include "engine/sampling/stop_checker.h"

#include <gtest/gtest.h>

#include "engine/sampling_reference.h"

namespace cadre {
namespace {

using Strings = std::vector<std::string>;

// What was emitted after each piece, then what flush gave.
Strings run(StopChecker checker, const Strings& pieces) {
  Strings out;
  for (const std::string& piece : pieces) out.push_back(checker.feed(piece));
  out.push_back(checker.flush());
  return out;
}

TEST(StopChecker, WithoutStopsTextPassesThrough) {
  EXPECT_EQ(run(StopChecker({}), {"a", "", "bc"}), (Strings{"a", "", "bc", ""}));
  EXPECT_EQ(run(StopChecker({""}), {"ab"}), (Strings{"ab", ""}));
}

TEST(StopChecker, HoldsBackWhatMayBecomeAStop) {
  EXPECT_EQ(run(StopChecker({"END"}), {"xE", "N", "y"}), (Strings{"x", "", "ENy", ""}));
  EXPECT_EQ(run(StopChecker({"END"}), {"xE", "N"}), (Strings{"x", "", "EN"}));
  EXPECT_EQ(run(StopChecker({"END"}), {"xE", "N", "Dy", "z"}), (Strings{"x", "", "", "", ""}));
  EXPECT_EQ(run(StopChecker({"\n\n"}), {"a\n", "b\n", "\nc"}), (Strings{"a", "\nb", "", ""}));
  EXPECT_EQ(run(StopChecker({"END", "NEVER"}), {"EN", "E"}), (Strings{"", "E", "NE"}));
}

TEST(StopChecker, OverlappingPrefixes) {
  EXPECT_EQ(run(StopChecker({"aab"}), {"aaab", "c"}), (Strings{"a", "", ""}));
  EXPECT_EQ(run(StopChecker({"aab"}), {"a", "a", "a", "b"}), (Strings{"", "", "a", "", ""}));
  EXPECT_EQ(run(StopChecker({"abab c"}), {"ababab c"}), (Strings{"ab", ""}));
}

TEST(StopChecker, TheMatchThatEndsFirstWinsThenTheLongest) {
  StopChecker first({"abcd", "bc"});
  EXPECT_EQ(first.feed("xabcd"), "xa");
  EXPECT_EQ(first.matched(), "bc");
  StopChecker longest({"c", "abc", "bc"});
  EXPECT_EQ(longest.feed("xabcd"), "x");
  EXPECT_EQ(longest.matched(), "abc");
  EXPECT_TRUE(longest.stopped());
  EXPECT_EQ(longest.feed("more"), "");
  EXPECT_EQ(longest.flush(), "");
}

TEST(StopChecker, IncludeStop) {
  StopChecker checker({"END"}, /*include_stop=*/true);
  EXPECT_EQ(checker.feed("x E"), "x ");
  EXPECT_FALSE(checker.stopped());
  EXPECT_EQ(checker.feed("NDy"), "END");
  EXPECT_TRUE(checker.stopped());
}

TEST(StopChecker, CharactersStayWhole) {
  // Both begin with the byte E2 82: only a whole character that begins the stop is held.
  EXPECT_EQ(run(StopChecker({"€!"}), {"1€", "₤", "€!x"}), (Strings{"1", "€₤", "", ""}));
  EXPECT_EQ(run(StopChecker({"é"}), {"caf", "é"}), (Strings{"caf", "", ""}));
}

TEST(StopChecker, MatchesArePassedOverBelowMinTokens) {
  StopChecker checker({"aa"});
  EXPECT_EQ(checker.feed("xaa", false), "xa");
  EXPECT_FALSE(checker.stopped());
  EXPECT_EQ(checker.feed("b", false), "ab");
  EXPECT_EQ(checker.feed("aaaaa", false), "aaaa");
  EXPECT_EQ(checker.feed("ab"), "");  // a match may begin before the border
  EXPECT_TRUE(checker.stopped());
}

// Emitted text never has to be taken back, and does not depend on the pieces: against a search of the whole text.
TEST(StopChecker, EveryCutOfRandomTextsGivesTheSame) {
  test::Random random(17);
  int found = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto letters = [&](int max) {
      std::string text;
      for (int n = 1 + random.below(max); n > 0; --n) text += static_cast<char>('a' + random.below(2 + round % 2));
      return text;
    };
    Strings stops;
    for (int n = random.below(4); n >= 0; --n) stops.push_back(letters(6));
    const std::string text = letters(60);
    const bool include = round % 3 == 0;

    std::size_t end = std::string::npos;
    std::string match;
    for (const std::string& stop : stops) {
      const std::size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      const std::size_t this_end = at + stop.size();
      if (end == std::string::npos || this_end < end || (this_end == end && stop.size() > match.size())) {
        end = this_end;
        match = stop;
      }
    }
    const std::string want = end == std::string::npos ? text : text.substr(0, include ? end : end - match.size());
    found += end != std::string::npos;

    StopChecker checker(stops, include);
    std::string got;
    std::size_t fed = 0;
    while (fed < text.size()) {
      const std::size_t piece = static_cast<std::size_t>(random.below(5));
      got += checker.feed(text.substr(fed, piece));
      fed += piece;
      if (checker.stopped()) continue;
      // Held back: exactly the longest tail that begins a stop.
      const std::string so_far = text.substr(0, fed);
      std::size_t tail = 0;
      for (const std::string& stop : stops) {
        for (std::size_t n = 1; n < stop.size() && n <= so_far.size(); ++n) {
          if (so_far.ends_with(stop.substr(0, n))) tail = std::max(tail, n);
        }
      }
      ASSERT_EQ(got, so_far.substr(0, so_far.size() - tail));
    }
    got += checker.flush();
    ASSERT_EQ(got, want) << text;
    ASSERT_EQ(checker.matched(), match);
    ASSERT_EQ(checker.stopped(), !match.empty());
  }
  EXPECT_GT(found, 300);
  EXPECT_LT(found, 990);
}

}  // namespace
}  // namespace cadre
