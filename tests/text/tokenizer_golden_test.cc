// Every case that the tokenizers library has encoded and decoded, for every kind of tokenizer.json.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace cadre {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

json read_json(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return json::parse(in);
}

class TokenizerGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(CADRE_GOLDENS "/tokenizers/") + GetParam();
    auto loaded = Tokenizer::load(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    tokenizer_ = std::move(loaded).value();
    file_ = folder + "/tokenizer.json";
    cases_ = read_json(folder + "/cases.json");
    ASSERT_EQ(cases_.size(), 254U);
  }

  std::string file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  json cases_;
};

TEST_P(TokenizerGolden, EncodesAndDecodes) {
  for (const json& item : cases_) {
    const auto text = item.at("text").get<std::string>();
    SCOPED_TRACE(item.at("text").dump(-1, ' ', true));
    const auto ids = tokenizer_->encode(text, true);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, item.at("ids").get<Ids>());
    const auto plain = tokenizer_->encode(text, false);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    EXPECT_EQ(*plain, item.at("ids_no_special").get<Ids>());
    // "decoded" is of the ids without special tokens, "decoded_skip" leaves them out itself.
    EXPECT_EQ(tokenizer_->decode(*plain, false), item.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer_->decode(*ids, true), item.at("decoded_skip").get<std::string>());
  }
}

// Whether the text ends where a character ends.
bool whole_characters(const std::string& text) {
  const std::string dumped = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return json::parse(dumped).get<std::string>() == text;
}

TEST_P(TokenizerGolden, StreamsTheSame) {
  for (const bool skip : {false, true}) {
    StreamDecoder stream(*tokenizer_, skip);
    for (const json& item : cases_) {
      SCOPED_TRACE(item.at("text").dump(-1, ' ', true));
      std::string text;
      for (const std::int32_t id : item.at(skip ? "ids" : "ids_no_special").get<Ids>()) {
        const std::string part = stream.push(id);
        EXPECT_TRUE(whole_characters(part));
        text += part;
      }
      text += stream.flush();
      EXPECT_EQ(text, item.at(skip ? "decoded_skip" : "decoded").get<std::string>());
    }
  }
}

// Ids in any order, so that characters are cut anywhere and bytes of a fallback make no text.
TEST_P(TokenizerGolden, StreamsArbitraryIds) {
  std::uint32_t state = 1;
  const auto end = static_cast<std::uint32_t>(tokenizer_->vocab_size()) + 5;
  for (int round = 0; round < 50; ++round) {
    Ids ids;
    StreamDecoder stream(*tokenizer_, round % 2 == 0);
    std::string text;
    for (int i = 0; i < 200; ++i) {
      state = state * 1664525U + 1013904223U;
      // Low ids are single bytes in all these files.
      const auto id = static_cast<std::int32_t>((state >> 8) % (round % 4 < 2 ? 300U : end));
      ids.push_back(id);
      const std::string part = stream.push(id);
      EXPECT_TRUE(whole_characters(part));
      text += part;
    }
    text += stream.flush();
    EXPECT_EQ(text, tokenizer_->decode(ids, round % 2 == 0));
  }
}

TEST_P(TokenizerGolden, MergesAsStrings) {
  json file = read_json(file_);
  for (json& merge : file["model"]["merges"]) {
    merge = merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
  }
  const auto other = Tokenizer::from_json(file.dump(), "merges as strings");
  ASSERT_TRUE(other.ok()) << other.status().message();
  for (const json& item : cases_) {
    const auto ids = (*other)->encode(item.at("text").get<std::string>(), true);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, item.at("ids").get<Ids>());
  }
}

TEST_P(TokenizerGolden, TokensAndIds) {
  const json file = read_json(file_);
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    EXPECT_EQ(tokenizer_->token_to_id(token), id.get<std::int32_t>());
    EXPECT_EQ(tokenizer_->id_to_token(id.get<std::int32_t>()), token);
  }
  for (const json& token : file["added_tokens"]) {
    const auto id = token.at("id").get<std::int32_t>();
    EXPECT_EQ(tokenizer_->token_to_id(token.at("content").get<std::string>()), id);
    EXPECT_EQ(tokenizer_->is_special(id), token.at("special").get<bool>());
  }
  EXPECT_EQ(tokenizer_->id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer_->id_to_token(static_cast<std::int32_t>(tokenizer_->vocab_size())), std::nullopt);
  EXPECT_NE(tokenizer_->id_to_token(static_cast<std::int32_t>(tokenizer_->vocab_size()) - 1), std::nullopt);
  EXPECT_EQ(tokenizer_->token_to_id("no such token"), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGolden,
                         testing::Values("deepseek", "gemma", "gpt2", "llama3", "mixtral", "o200k", "qwen2"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace cadre
