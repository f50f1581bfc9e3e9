// What a tokenizer.json may say wrongly, and what then happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace cadre {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

// Characters a, b, c and space; merges to ab and abc.
json small() {
  return json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 6, "content": "<x>", "special": true, "normalized": false,
                      "lstrip": false, "rstrip": false, "single_word": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, " ": 3, "ab": 4, "abc": 5},
              "merges": [["a", "b"], ["ab", "c"]]}
  })");
}

Result<std::unique_ptr<Tokenizer>> load(const json& file) { return Tokenizer::from_json(file.dump(), "small.json"); }

void expect_refused(const json& file, Code code, const std::string& text) {
  const auto result = load(file);
  ASSERT_FALSE(result.ok()) << "want: " << text;
  EXPECT_EQ(result.status().code(), code) << result.status().message();
  EXPECT_THAT(result.status().message(), HasSubstr("small.json: "));
  EXPECT_THAT(result.status().message(), HasSubstr(text));
}

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  auto ids = tokenizer.encode(text, true);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : Ids{};
}

TEST(TokenizerFile, SmallOneWorks) {
  const auto tokenizer = load(small());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode(**tokenizer, "abcab<x>a b"), (Ids{5, 4, 6, 0, 3, 1}));
  EXPECT_EQ((*tokenizer)->decode(Ids{5, 4, 6, 0, 3, 1, 7, -1, 1000000}, false), "abcab<x>a b");
  EXPECT_EQ((*tokenizer)->decode(Ids{5, 4, 6, 0, 3, 1}, true), "abcaba b");
  EXPECT_EQ((*tokenizer)->vocab_size(), 7U);
  EXPECT_EQ(encode(**tokenizer, "xaz"), Ids{0});  // no unk_token: what has no token is dropped
}

TEST(TokenizerFile, EveryTruncationIsRefused) {
  const std::string text = small().dump();
  for (std::size_t size = 0; size < text.size(); ++size) {
    const auto result = Tokenizer::from_json(text.substr(0, size), "cut");
    ASSERT_FALSE(result.ok()) << size;
    EXPECT_EQ(result.status().code(), Code::kInvalidFile);
    EXPECT_THAT(result.status().message(), HasSubstr("cut: is not valid JSON"));
  }
}

TEST(TokenizerFile, WrongTypes) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([{"op":"replace","path":"/model","value":[]}])", "model: expected an object, got an array"},
      {R"([{"op":"remove","path":"/model"}])", "lacks 'model'"},
      {R"([{"op":"replace","path":"/model/vocab","value":3}])", "model.vocab: expected an object"},
      {R"([{"op":"remove","path":"/model/vocab"}])", "lacks 'vocab'"},
      {R"([{"op":"remove","path":"/model/merges"}])", "lacks 'merges'"},
      {R"([{"op":"replace","path":"/model/vocab/a","value":"0"}])", "token 'a' has a value that is not an id"},
      {R"([{"op":"replace","path":"/model/vocab/a","value":0.5}])", "token 'a' has a value that is not an id"},
      {R"([{"op":"replace","path":"/model/vocab/a","value":-1}])", "token 'a' has id -1"},
      {R"([{"op":"replace","path":"/model/vocab/a","value":99999999}])", "token 'a' has id 99999999"},
      {R"([{"op":"replace","path":"/model/vocab/a","value":1}])", "id 1 belongs to both"},
      {R"([{"op":"replace","path":"/model/merges","value":{}}])", "model.merges: expected an array"},
      {R"([{"op":"replace","path":"/model/merges/1","value":7}])", "merge 1: expected a string or two strings"},
      {R"([{"op":"replace","path":"/model/merges/1","value":["a"]}])", "merge 1: expected two strings"},
      {R"([{"op":"replace","path":"/model/merges/1","value":["a","b","c"]}])", "merge 1: expected two strings"},
      {R"([{"op":"replace","path":"/model/merges/1","value":"a b c"}])", "merge 1: 'a b c' is not two tokens"},
      {R"([{"op":"replace","path":"/model/merges/1","value":"ab"}])", "merge 1: 'ab' is not two tokens"},
      {R"([{"op":"replace","path":"/model/merges/1","value":["ab","z"]}])", "merge 1 names token 'z'"},
      {R"([{"op":"replace","path":"/model/merges/1","value":["b","c"]}])", "merge 1 makes token 'bc'"},
      {R"([{"op":"add","path":"/model/byte_fallback","value":1}])", "model.byte_fallback: expected true or false"},
      {R"([{"op":"add","path":"/model/unk_token","value":[]}])", "model.unk_token: expected a string"},
      {R"([{"op":"replace","path":"/added_tokens","value":{}}])", "added_tokens: expected an array"},
      {R"([{"op":"replace","path":"/added_tokens/0","value":5}])", "added_tokens[0]: expected an object"},
      {R"([{"op":"remove","path":"/added_tokens/0/id"}])", "added_tokens[0]: lacks 'id'"},
      {R"([{"op":"replace","path":"/added_tokens/0/id","value":-4}])", "added_tokens[0].id: -4"},
      {R"([{"op":"replace","path":"/added_tokens/0/id","value":5}])",
       "'<x>' has id 5, which model.vocab gives to 'abc'"},
      {R"([{"op":"replace","path":"/added_tokens/0/content","value":"abc"}])", "'abc' has id 6, but 5 in model.vocab"},
      {R"([{"op":"replace","path":"/added_tokens/0/lstrip","value":0}])", "added_tokens[0].lstrip: expected true or"},
      {R"([{"op":"replace","path":"/normalizer","value":"NFC"}])", "normalizer: expected an object, got a string"},
      {R"([{"op":"replace","path":"/normalizer","value":{}}])", "normalizer: lacks 'type'"},
      {R"([{"op":"replace","path":"/normalizer","value":{"type":"Prepend"}}])", "normalizer: lacks 'prepend'"},
      {R"([{"op":"replace","path":"/pre_tokenizer","value":{"type":"Sequence","pretokenizers":[{"type":"Split",
          "pattern":{"Regex":"("},"behavior":"Isolated"}]}}])",
       "pre_tokenizer.pretokenizers[0].pattern: pattern '(' does not compile"},
      {R"([{"op":"replace","path":"/pre_tokenizer","value":{"type":"Split","pattern":"x","behavior":"Isolated"}}])",
       "pre_tokenizer.pattern: expected an object"},
      {R"([{"op":"replace","path":"/pre_tokenizer","value":{"type":"Metaspace","replacement":"ab"}}])",
       "'ab' is not one character"},
      {R"([{"op":"replace","path":"/post_processor","value":{"type":"TemplateProcessing","special_tokens":{},
          "single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]}}])",
       "post_processor.special_tokens: lacks '<s>'"},
      {R"([{"op":"replace","path":"/post_processor","value":{"type":"BertProcessing","cls":["a",0],"sep":["q",77]}}])",
       "post_processor: adds id 77"},
      {R"([{"op":"replace","path":"/decoder","value":{"type":"Strip","content":" ","start":-1}}])", "is negative"},
  };
  for (const auto& [patch, text] : cases) {
    expect_refused(small().patch(json::parse(patch)), Code::kInvalidFile, text);
  }
}

TEST(TokenizerFile, UnknownPartsAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([{"op":"replace","path":"/model/type","value":"Unigram"}])", "model.type: 'Unigram' is not supported"},
      {R"([{"op":"replace","path":"/model/type","value":"WordPiece"}])", "model.type: 'WordPiece' is not supported"},
      {R"([{"op":"replace","path":"/model/type","value":"WordLevel"}])", "model.type: 'WordLevel' is not supported"},
      {R"([{"op":"add","path":"/model/dropout","value":0.1}])", "model.dropout: 0.1"},
      {R"([{"op":"add","path":"/model/end_of_word_suffix","value":"</w>"}])", "model.end_of_word_suffix: '</w>'"},
      {R"([{"op":"add","path":"/model/continuing_subword_prefix","value":"##"}])", "prefix: '##'"},
      {R"([{"op":"replace","path":"/normalizer","value":{"type":"Precompiled"}}])",
       "normalizer: normalizer type 'Precompiled' is not supported; supported are Sequence, NFC"},
      {R"([{"op":"replace","path":"/normalizer","value":{"type":"Sequence","normalizers":[{"type":"Nope"}]}}])",
       "normalizer.normalizers[0]: normalizer type 'Nope'"},
      {R"([{"op":"replace","path":"/pre_tokenizer","value":{"type":"UnicodeScripts"}}])",
       "pre-tokenizer type 'UnicodeScripts'"},
      {R"([{"op":"replace","path":"/pre_tokenizer","value":{"type":"Split","pattern":{"String":"a"},
          "behavior":"Odd"}}])",
       "pre_tokenizer.behavior: 'Odd'"},
      {R"([{"op":"replace","path":"/post_processor","value":{"type":"Nope"}}])", "post-processor type 'Nope'"},
      {R"([{"op":"replace","path":"/decoder","value":{"type":"WordPiece"}}])", "decoder type 'WordPiece'"},
      {R"([{"op":"replace","path":"/decoder","value":{"type":"Replace","pattern":{"Regex":"a"},"content":""}}])",
       "decoder.pattern: a regular expression"},
  };
  for (const auto& [patch, text] : cases) {
    expect_refused(small().patch(json::parse(patch)), Code::kUnsupported, text);
  }
}

TEST(TokenizerFile, DuplicateTokens) {
  std::string text = small().dump();
  text.replace(text.find("\"ab\":4"), 6, "\"ab\":4,\"ab\":9");
  const auto result = Tokenizer::from_json(text, "twice");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().message(), HasSubstr("token 'ab' has two ids, 4 and 9"));
  // The same added token twice is harmless.
  json file = small();
  file["added_tokens"].push_back(file["added_tokens"][0]);
  EXPECT_TRUE(load(file).ok());
  file["added_tokens"][1]["id"] = 8;
  expect_refused(file, Code::kInvalidFile, "'<x>' has two ids, 6 and 8");
  file["added_tokens"][1]["id"] = 6;
  file["added_tokens"][1]["content"] = "<y>";
  expect_refused(file, Code::kInvalidFile, "id 6 belongs to both '<x>' and '<y>'");
}

TEST(TokenizerFile, DepthAndCountsAreBounded) {
  std::string deep = R"({"model":{},"normalizer":)";
  for (int i = 0; i < 100'000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 100'000; ++i) deep += "]}";
  deep += "}";
  const auto open = Tokenizer::from_json(deep, "deep");
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.status().code(), Code::kLimitExceeded);
  EXPECT_THAT(open.status().message(), HasSubstr("nested deeper than 64"));

  json many = small();
  for (int i = 0; i < 65; ++i) many["steps"].push_back({{"type", "NFC"}});
  many["normalizer"] = {{"type", "Sequence"}, {"normalizers", many["steps"]}};
  expect_refused(many, Code::kLimitExceeded, "more than 64 normalizers");

  json growing = small();
  json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  growing["decoder"] = {{"type", "Sequence"}, {"decoders", json::array()}};
  for (int i = 0; i < 7; ++i) growing["decoder"]["decoders"].push_back(doubling);
  expect_refused(growing, Code::kLimitExceeded, "more than 64 times as long");

  // In a normalizer the growth shows with the text.
  growing = small();
  growing["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 60; ++i) growing["normalizer"]["normalizers"].push_back(doubling);
  const auto tokenizer = load(growing);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto ids = (*tokenizer)->encode("a", true);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), Code::kLimitExceeded);
}

TEST(TokenizerFile, PreTokenizersCannotGrowATextWithoutEnd) {
  json file = small();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 60; ++i) {
    file["pre_tokenizer"]["pretokenizers"].push_back(
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }
  const auto tokenizer = load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode(**tokenizer, "abc"), Ids{5});
  const auto ids = (*tokenizer)->encode("\xC3\xA9", true);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), Code::kLimitExceeded);
  EXPECT_THAT(ids.status().message(), HasSubstr("pre-tokenizing makes a text longer than"));
}

TEST(TokenizerFile, MissingUnkTokenShowsWhenNeeded) {
  json file = small();
  file["model"]["unk_token"] = "<unk>";
  const auto tokenizer = load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode(**tokenizer, "ab"), Ids{4});
  const auto ids = (*tokenizer)->encode("z", true);
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.status().message(), HasSubstr("model.unk_token '<unk>' is not in the vocabulary"));
}

TEST(TokenizerFile, ReadsFoldersAndFiles) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("cadre_tokenizer_" + std::to_string(getpid()));
  fs::create_directories(folder);
  auto missing = Tokenizer::load(folder.string());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("tokenizer.json"));
  std::ofstream(folder / "tokenizer.json") << small().dump();
  EXPECT_TRUE(Tokenizer::load(folder.string()).ok());
  EXPECT_TRUE(Tokenizer::load((folder / "tokenizer.json").string()).ok());
  fs::remove_all(folder);
}

TEST(TokenizerText, InvalidUtf8BecomesReplacementCharacters) {
  json file = small();
  file["model"]["vocab"]["\xEF\xBF\xBD"] = 7;
  const auto tokenizer = load(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(encode(**tokenizer,
                   "a\xFF"
                   "b"),
            (Ids{0, 7, 1}));
  EXPECT_EQ(encode(**tokenizer,
                   "\xE2\x82"
                   "a"),
            (Ids{7, 0}));  // one cut character
  EXPECT_EQ(encode(**tokenizer,
                   "\xC0\xAF"
                   "a\xF0\x9F"),
            (Ids{7, 7, 0, 7}));                                           // overlong; cut at the end
  EXPECT_EQ(encode(**tokenizer, "\xED\xA0\x80"), (Ids{7, 7, 7}));         // a surrogate
  EXPECT_EQ(encode(**tokenizer, "\xF4\x90\x80\x80"), (Ids{7, 7, 7, 7}));  // beyond U+10FFFF
}

TEST(TokenizerText, TooLongIsRefused) {
  const auto tokenizer = load(small());
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = (*tokenizer)->encode(std::string((64U << 20) + 1, 'a'), true);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), Code::kLimitExceeded);
}

// What a pattern from a file can cost is bounded.
TEST(TokenizerText, HostilePatternsEnd) {
  int stopped = 0;
  for (const char* pattern :
       {"(a+)+$(?<=b)", "(a|a)*c", "(a*)*(a*)*(a*)*c", "(?=(a+))\\1{30}c|a{1,60000}c", "a*a*a*a*c"}) {
    SCOPED_TRACE(pattern);
    json file = small();
    file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    const auto tokenizer = load(file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = (*tokenizer)->encode(std::string(5000, 'a') + "bc", true);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (!ids.ok()) {
      ++stopped;
      EXPECT_EQ(ids.status().code(), Code::kLimitExceeded) << ids.status().message();
    }
    EXPECT_LT(taken.count(), 30);
  }
  EXPECT_GE(stopped, 2);
}

TEST(TokenizerText, SameFromManyThreads) {
  const auto tokenizer = Tokenizer::load(CADRE_GOLDENS "/tokenizers/qwen2");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::ifstream in(CADRE_GOLDENS "/tokenizers/qwen2/cases.json");
  const json cases = json::parse(in);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) {
        for (const json& item : cases) {
          const auto ids = (*tokenizer)->encode(item.at("text").get<std::string>(), true);
          if (!ids.ok() || *ids != item.at("ids").get<Ids>()) ++wrong[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace cadre
