#include "cli/config_file.h"

#include <gmock/gmock.h>

#include <random>

#include "files.h"

namespace cadre::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<ConfigEntry> parsed(std::string_view text) {
  const auto entries = parse_config(text, "f.yaml");
  EXPECT_TRUE(entries.ok()) << entries.status().message();
  return entries.ok() ? *entries : std::vector<ConfigEntry>();
}

std::string refused(std::string_view text) {
  const auto entries = parse_config(text, "f.yaml");
  EXPECT_FALSE(entries.ok()) << text.substr(0, 100);
  EXPECT_EQ(entries.status().code(), Code::kInvalidFile);
  EXPECT_THAT(entries.status().message(), testing::StartsWith("f.yaml"));
  return entries.status().message();
}

TEST(ConfigFile, ValuesListsAndMaps) {
  const auto entries = parsed(
      "# comment\nport: 8001\nmodel: org/name  # more\nadapter:\n  - a=/x\n  - 'b=/y z'\n"
      "default-chat-template-kwargs: {enable_thinking: false, level: 3, name: \"3\", deep: [1.5, null, yes]}\n"
      "empty: []\nlora_modules:\n- {name: c, path: /c}\n");
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(entries[0].key, "port");
  EXPECT_EQ(entries[0].line, 2);
  EXPECT_FALSE(entries[0].is_list);
  EXPECT_THAT(entries[0].values, ElementsAre("8001"));
  EXPECT_THAT(entries[1].values, ElementsAre("org/name"));
  EXPECT_TRUE(entries[2].is_list);
  EXPECT_THAT(entries[2].values, ElementsAre("a=/x", "b=/y z"));
  EXPECT_THAT(entries[3].values,
              ElementsAre(R"({"enable_thinking": false, "level": 3, "name": "3", "deep": [1.5, null, "yes"]})"));
  EXPECT_TRUE(entries[4].values.empty());
  EXPECT_EQ(entries[5].line, 9);
  EXPECT_THAT(entries[5].values, ElementsAre(R"({"name": "c", "path": "/c"})"));
}

TEST(ConfigFile, JsonIsYaml) {
  const auto entries = parsed("{\"port\": 8001,\n \"api-key\": [\"a\", \"b\"]}");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_THAT(entries[1].values, ElementsAre("a", "b"));
  EXPECT_TRUE(parsed("").empty());
  EXPECT_TRUE(parsed("# nothing\n").empty());
}

TEST(ConfigFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(refused("port: 1\nhost: x\nport: 2\n"), HasSubstr("f.yaml:3: 'port' is given again, first in line 1"));
  EXPECT_THAT(refused("a: {x: 1, x: 2}"), HasSubstr("'x' is given twice"));
  EXPECT_THAT(refused("- a\n"), HasSubstr("key: value"));
  EXPECT_THAT(refused("word"), HasSubstr("key: value"));
  EXPECT_THAT(refused("x: 1\nport:\n"), HasSubstr("'port' has no value"));
  EXPECT_THAT(refused("a: [[1]]"), HasSubstr("list inside of a list"));
  EXPECT_THAT(refused("a: 1\n b: [\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refused("a: 1\n\tb: 2\n"), HasSubstr("f.yaml:2"));
  EXPECT_THAT(refused("[1]: 2"), HasSubstr("want a name before the colon"));
  EXPECT_THAT(refused(std::string_view("a: \0b", 5)), HasSubstr("not a text file"));
  EXPECT_THAT(refused("a: " + std::string(2 << 20, 'x')), HasSubstr("larger than"));
}

TEST(ConfigFile, NothingGrowsWithoutALimit) {
  // Nine levels of nine aliases each: a small file that stands for 387 million values.
  std::string bomb = "a0: &a0 {x: 1}\n";
  for (int i = 1; i <= 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {";
    for (int j = 0; j < 9; ++j) bomb += (j > 0 ? ", " : "") + std::string(1, static_cast<char>('a' + j)) + ": " + last;
    bomb += "}\n";
  }
  EXPECT_THAT(refused(bomb), HasSubstr("aliases counted"));
  EXPECT_THAT(refused("a: &a {b: *a}"), HasSubstr(""));
  refused("a: " + std::string(100'000, '['));
  refused("a: " + std::string(100'000, '{'));
}

TEST(ConfigFile, BytesOfAnyKindNeverThrow) {
  std::mt19937 random(1);
  const std::string letters = "ab:-[]{}&*!|>'\"#%@`,?\n\t \\~0<=\xff\xc3\xa9";
  int refusals = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = i % 2 == 0 ? "port: 8000\nadapter: [a, b]\nx: {y: 1}\n" : "";
    for (int j = 0; j < 20; ++j) {
      const std::size_t at = random() % (text.size() + 1);
      text.insert(at, 1, letters[random() % letters.size()]);
    }
    if (!parse_config(text, "f").ok()) ++refusals;
  }
  EXPECT_GT(refusals, 1000);
}

TEST(ConfigFile, Files) {
  TempFolder folder;
  const std::string path = folder.file("c.yaml", "port: 1\n");
  ASSERT_TRUE(read_config_file(path).ok());
  EXPECT_EQ(read_config_file(folder.path("no.yaml")).status().code(), Code::kNotFound);
  EXPECT_EQ(read_config_file(folder.path()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace cadre::cli
