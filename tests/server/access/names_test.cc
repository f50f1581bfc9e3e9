#include "server/access/names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cadre::server {
namespace {

TEST(Names, WhatIsOne) {
  for (const char* name : {"a", "team-a", "A.b_c-9", "v1.2", "-x", "_"}) EXPECT_TRUE(is_name(name)) << name;
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "a b", "a:b", "a*", "a\n", "\xc3\xa4", "a,b", "a\"b"}) {
    EXPECT_FALSE(is_name(name)) << name;
  }
  EXPECT_FALSE(is_name(std::string_view("a\0b", 3)));
  EXPECT_TRUE(is_name(std::string(kMaxName, 'a')));
  EXPECT_FALSE(is_name(std::string(kMaxName + 1, 'a')));
}

TEST(Names, Patterns) {
  EXPECT_TRUE(is_pattern("team-?-*"));
  EXPECT_FALSE(is_pattern(""));
  EXPECT_FALSE(is_pattern("[ab]"));
  struct Case {
    const char *pattern, *name;
    bool expected;
  };
  const std::vector<Case> cases{
      {"*", "", true},
      {"*", "anything", true},
      {"a", "a", true},
      {"a", "b", false},
      {"a", "ab", false},
      {"ab", "a", false},
      {"team-a-*", "team-a-", true},
      {"team-a-*", "team-a-x", true},
      {"team-a-*", "team-ab-x", false},
      {"team-a-*", "xteam-a-y", false},
      {"*-a", "x-a", true},
      {"*-a", "x-a-b", false},
      {"*-a", "-a-a", true},
      {"?", "a", true},
      {"?", "", false},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"a*b*c", "a1b2b3c", true},
      {"a*b*c", "a1c2b", false},
      {"**a**", "bab", true},
      {"A", "a", false},
      {"?*", "x", true},
      {"", "", true},
      {"", "a", false},
  };
  for (const Case& c : cases) EXPECT_EQ(matches(c.pattern, c.name), c.expected) << c.pattern << " on " << c.name;
}

TEST(Names, CostlyPatternEnds) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "a*";
  EXPECT_FALSE(matches(pattern + "b", std::string(100'000, 'a')));
}

TEST(Names, ShownHasNothingThatSteers) {
  EXPECT_EQ(shown("a\nb\x1b[31m\x7f\xff"), "a?b?[31m??");
  EXPECT_EQ(shown(std::string(500, 'x')), std::string(200, 'x') + "...");
}

TEST(Names, WithoutPaths) {
  EXPECT_EQ(without_paths("loading /srv/models/x: no such file"), "loading (path): no such file");
  EXPECT_EQ(without_paths("'/srv/my models/x' is gone"), "'(path)' is gone");
  EXPECT_EQ(without_paths("/a/b.safetensors: tensor 'w' has 3 elements"), "(path): tensor 'w' has 3 elements");
  EXPECT_EQ(without_paths("rank 8 / 16, 1/2, a/b and /"), "rank 8 / 16, 1/2, a/b and /");
  EXPECT_EQ(without_paths("(/x/y) and \"/never closed"), "((path)) and \"(path)");
}

}  // namespace
}  // namespace cadre::server
