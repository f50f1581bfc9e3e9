#include "synth/tokenizer_files.h"

#include <gtest/gtest.h>

#include <set>

#include "base/result.h"
#include "support/status_matchers.h"
#include "text/tokenizer/tokenizer.h"

namespace cadre::test {
namespace {

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const std::string& text, std::int64_t vocab) {
  CADRE_ASSIGN(const Json json, Json::parse(text, "config"));
  CADRE_ASSIGN(ModelConfig config, parse_model_config(json));
  config.vocab = vocab;
  CADRE_ASSIGN(const auto files, make_tokenizer_files(config));
  for (const auto& [name, content] : files) {
    if (name == "tokenizer.json") return Tokenizer::from_json(content, name);
  }
  return error(Code::kInternal, "there is no tokenizer.json");
}

constexpr const char* kConfig =
    R"({"model_type": "qwen3_moe", "hidden_size": 8, "vocab_size": 1000, "eos_token_id": [2, 7], "bos_token_id": 1})";

TEST(TokenizerFiles, TextOfAllBytesGoesThereAndBack) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(kConfig, 1000);
  ASSERT_THAT(tokenizer, Succeeds());
  const std::string text = "Hello, world!\n\tna\u00efve \u65e5\u672c \U0001f600 42";
  Result<std::vector<std::int32_t>> ids = (*tokenizer)->encode(text, true);
  ASSERT_THAT(ids, Succeeds());
  EXPECT_EQ(ids->size(), text.size());
  EXPECT_EQ((*tokenizer)->decode(*ids, true), text);
}

TEST(TokenizerFiles, EveryIdHasATextOfItsOwn) {
  for (const std::int64_t vocab : {260, 1000, 20'000}) {
    Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(kConfig, vocab);
    ASSERT_THAT(tokenizer, Succeeds());
    std::set<std::string> texts;
    for (std::int32_t id = 0; id < vocab; ++id) texts.insert((*tokenizer)->token_bytes(id));
    EXPECT_EQ(texts.size(), static_cast<std::size_t>(vocab));
    EXPECT_FALSE(texts.contains(""));
  }
}

TEST(TokenizerFiles, SpecialTokensAreWhereTheConfigWantsThem) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = tokenizer_of(kConfig, 1000);
  ASSERT_THAT(tokenizer, Succeeds());
  const std::vector<std::int32_t> ids = {1, 2, 7};
  EXPECT_EQ((*tokenizer)->decode(ids, false), "<|bos|><|eos|><|eos_7|>");
  EXPECT_EQ((*tokenizer)->decode(ids, true), "");
}

TEST(TokenizerFiles, AVocabularyWithoutRoomIsRefused) {
  EXPECT_THAT(tokenizer_of(kConfig, 258), FailsWith(Code::kInvalidArgument, "want at least 259"));
}

}  // namespace
}  // namespace cadre::test
