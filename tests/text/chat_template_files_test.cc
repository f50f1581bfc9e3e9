#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "text/chat_template_support.h"

namespace cadre {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ChatTemplateFiles : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::string found(bool with_tools = false) {
    auto file = find_chat_template(folder_.string(), with_tools);
    if (!file.ok()) return "error: " + file.status().message();
    return file->has_value() ? (*file)->source : "nothing";
  }

  const fs::path folder_ = fs::temp_directory_path() / ("cadre_chat_template_" + std::to_string(getpid()));
};

TEST_F(ChatTemplateFiles, NoneIsNoError) {
  EXPECT_EQ(found(), "nothing");
  write("tokenizer_config.json", R"({"bos_token": null})");
  EXPECT_EQ(found(), "nothing");
}

TEST_F(ChatTemplateFiles, FileComesBeforeTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(found(), "from config");
  write("chat_template.jinja", "from file");
  EXPECT_EQ(found(), "from file");
  write("additional_chat_templates/tool_use.jinja", "for tools");
  EXPECT_EQ(found(), "from file");
  EXPECT_EQ(found(/*with_tools=*/true), "for tools");
}

TEST_F(ChatTemplateFiles, NamedTemplatesAreChosenByUse) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(found(), "D");
  EXPECT_EQ(found(/*with_tools=*/true), "T");
}

TEST_F(ChatTemplateFiles, MalformedConfigIsNamed) {
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(found(), HasSubstr("neither a string nor a list"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  EXPECT_THAT(found(), HasSubstr("none named 'default'"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THAT(found(), HasSubstr("is not {\"name\""));
  write("tokenizer_config.json", "[");
  EXPECT_THAT(found(), HasSubstr("tokenizer_config.json"));
}

TEST_F(ChatTemplateFiles, SpecialTokensAreTextOrObjects) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                                     "add_bos_token": true, "pad_token": null})");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "pad_token": "<pad>"})");
  auto tokens = read_special_tokens(folder_.string());
  ASSERT_TRUE(tokens.ok()) << tokens.status().message();
  EXPECT_THAT(*tokens, ElementsAre(Pair("bos_token", "<s>"), Pair("eos_token", "</s>"), Pair("pad_token", "<pad>")));
}

TEST_F(ChatTemplateFiles, DemoModelHasATemplate) {
  const std::string model = std::string(CADRE_SOURCE) + "/examples/models/qwen3_moe";
  auto file = find_chat_template(model, false);
  ASSERT_TRUE(file.ok() && file->has_value());
  EXPECT_EQ(render((*file)->source),
            "<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>assistant\n");
  auto tokens = read_special_tokens(model);
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(*tokens, ElementsAre(Pair("eos_token", "<|endoftext|>"), Pair("pad_token", "<|endoftext|>")));
}

}  // namespace
}  // namespace cadre
