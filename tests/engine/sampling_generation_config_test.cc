#include "engine/sampling/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace cadre {
namespace {

Result<GenerationDefaults> read(std::string_view text) {
  return read_generation_config(Json::parse(text, "generation_config.json").value());
}

using Ids = std::vector<std::int32_t>;

TEST(GenerationConfig, PublishedFile) {
  const GenerationDefaults got = read(R"({
    "bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
    "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.05,
    "max_new_tokens": 2048, "min_new_tokens": 1, "transformers_version": "4.51.0", "cache_implementation": null,
    "watermarking_config": {"greenlist_ratio": 0.25}})")
                                     .value();
  EXPECT_EQ(got.do_sample, true);
  EXPECT_EQ(got.temperature, 0.6);
  EXPECT_EQ(got.top_k, 20);
  EXPECT_EQ(got.top_p, 0.95);
  EXPECT_EQ(got.min_p, 0.01);
  EXPECT_EQ(got.repetition_penalty, 1.05);
  EXPECT_EQ(got.max_new_tokens, 2048);
  EXPECT_EQ(got.min_new_tokens, 1);
  EXPECT_EQ(got.eos_token_ids, (Ids{151645, 151643}));
  EXPECT_EQ(got.bos_token_id, 151643);
  EXPECT_EQ(got.pad_token_id, 151643);
}

TEST(GenerationConfig, AbsentNullAndNone) {
  for (const char* text : {"{}", R"({"do_sample": null, "temperature": null, "top_k": null, "eos_token_id": null,
                                     "bos_token_id": -1, "pad_token_id": -1})"}) {
    const GenerationDefaults got = read(text).value();
    EXPECT_FALSE(got.do_sample || got.temperature || got.top_k || got.top_p || got.min_p || got.repetition_penalty);
    EXPECT_FALSE(got.max_new_tokens || got.min_new_tokens || got.bos_token_id || got.pad_token_id);
    EXPECT_TRUE(got.eos_token_ids.empty());
  }
  EXPECT_EQ(read(R"({"eos_token_id": 2, "temperature": 1, "top_k": 50.0})")->eos_token_ids, (Ids{2}));
  EXPECT_EQ(read(R"({"eos_token_id": []})")->eos_token_ids, (Ids{}));
  EXPECT_EQ(read(R"({"eos_token_id": [-1, 4]})")->eos_token_ids, (Ids{4}));
}

TEST(GenerationConfig, RefusesWrongTypesAndRanges) {
  struct Bad {
    const char* text;
    const char* field;
  };
  const Bad cases[] = {
      {R"({"do_sample": "yes"})", "do_sample"},
      {R"({"do_sample": 1})", "do_sample"},
      {R"({"temperature": "0.6"})", "temperature"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"temperature": NaN})", "temperature"},
      {R"({"temperature": Infinity})", "temperature"},
      {R"({"temperature": [1]})", "temperature"},
      {R"({"top_k": 2.5})", "top_k"},
      {R"({"top_k": -2})", "top_k"},
      {R"({"top_k": 1e300})", "top_k"},
      {R"({"top_k": 3000000000})", "top_k"},
      {R"({"top_p": 1.01})", "top_p"},
      {R"({"min_p": -0.1})", "min_p"},
      {R"({"min_p": true})", "min_p"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
      {R"({"max_new_tokens": 0})", "max_new_tokens"},
      {R"({"min_new_tokens": -1})", "min_new_tokens"},
      {R"({"eos_token_id": "2"})", "eos_token_id"},
      {R"({"eos_token_id": true})", "eos_token_id"},
      {R"({"eos_token_id": {"id": 2}})", "eos_token_id"},
      {R"({"eos_token_id": 1.5})", "eos_token_id"},
      {R"({"eos_token_id": -2})", "eos_token_id"},
      {R"({"eos_token_id": [2, "3"]})", "eos_token_id'[1]"},
      {R"({"eos_token_id": [[2]]})", "eos_token_id'[0]"},
      {R"({"bos_token_id": [1]})", "bos_token_id"},
      {R"({"pad_token_id": "x"})", "pad_token_id"},
  };
  for (const Bad& bad : cases) {
    const Result<GenerationDefaults> got = read(bad.text);
    ASSERT_FALSE(got.ok()) << bad.text;
    EXPECT_EQ(got.status().code(), Code::kInvalidFile) << bad.text;
    EXPECT_THAT(got.status().message(), testing::HasSubstr("generation_config.json")) << bad.text;
    EXPECT_THAT(got.status().message(), testing::HasSubstr(bad.field)) << bad.text;
    EXPECT_THAT(got.status().message(), testing::HasSubstr(", want ")) << bad.text;
  }
  EXPECT_EQ(read(R"({"top_p": 1.5})").status().message(),
            "generation_config.json: field 'top_p' is 1.5, want between 0 and 1");
  EXPECT_FALSE(read("[]").ok());
  EXPECT_FALSE(read("3").ok());
}

TEST(GenerationConfig, TooManyEndTokens) {
  std::string text = R"({"eos_token_id": [0)";
  for (int i = 0; i < 5000; ++i) text += ",1";
  const Result<GenerationDefaults> got = read(text + "]}");
  EXPECT_THAT(got.status().message(), testing::HasSubstr("has 5001 ids, want at most 4096"));
}

// Every golden model's file is read; those say nothing about sampling.
TEST(GenerationConfig, Goldens) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CADRE_GOLDENS "/models")) {
    const std::string path = entry.path().string() + "/generation_config.json";
    if (!std::filesystem::exists(path)) continue;
    ++files;
    const Result<Json> json = Json::parse_file(path);
    ASSERT_TRUE(json.ok()) << json.status().message();
    const Result<GenerationDefaults> got = read_generation_config(*json);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got->eos_token_ids, (Ids{2}));
    EXPECT_EQ(got->bos_token_id, 1);
    EXPECT_EQ(got->pad_token_id, 0);
    EXPECT_EQ(resolve({}, *got).temperature, 0);
  }
  EXPECT_GT(files, 10);
}

}  // namespace
}  // namespace cadre
