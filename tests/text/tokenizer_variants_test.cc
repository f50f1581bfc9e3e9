// Every option of every part of tokenizer.json, on a small model: tokenizer_variants.json holds what the tokenizers
// library makes of it (tokenizer_variants.py wrote it).
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

TEST(TokenizerVariants, AsTheLibraryDoes) {
  std::ifstream in(CADRE_SOURCE "/tests/text/tokenizer_variants.json");
  ASSERT_TRUE(in);
  const json all = json::parse(in);
  const json& texts = all.at("texts");
  ASSERT_GT(all.at("variants").size(), 100U);
  for (const json& variant : all.at("variants")) {
    SCOPED_TRACE(variant.at("name").get<std::string>());
    json file = variant.at("file");
    file["model"] = all.at("model");
    file["model"].update(variant.at("model"));
    const auto loaded = Tokenizer::from_json(file.dump(), "variant");
    if (!loaded.ok()) {
      ADD_FAILURE() << loaded.status().message();
      continue;
    }
    const Tokenizer& tokenizer = **loaded;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      const json& want = variant.at("cases").at(i);
      SCOPED_TRACE(texts[i].dump(-1, ' ', true));
      const auto ids = tokenizer.encode(text, true);
      ASSERT_TRUE(ids.ok()) << ids.status().message();
      EXPECT_EQ(*ids, want.at(0).get<Ids>());
      const auto plain = tokenizer.encode(text, false);
      ASSERT_TRUE(plain.ok()) << plain.status().message();
      EXPECT_EQ(*plain, want.at(1).get<Ids>());
      const auto given = want.at(0).get<Ids>();
      for (const bool skip : {false, true}) {
        const json& decoded = want.at(skip ? 3 : 2);
        if (!decoded.is_null()) {
          EXPECT_EQ(tokenizer.decode(given, skip), decoded.get<std::string>());
        }
        StreamDecoder stream(tokenizer, skip);
        std::string streamed;
        for (const std::int32_t id : given) streamed += stream.push(id);
        streamed += stream.flush();
        EXPECT_EQ(streamed, tokenizer.decode(given, skip));
      }
    }
  }
}

}  // namespace
}  // namespace cadre
