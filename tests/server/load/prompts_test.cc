#include "server/load/prompts.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace cadre::server {
namespace {

using ::testing::HasSubstr;

TEST(Prompts, Lines) {
  EXPECT_EQ(parse_prompt("\"hi\"", "f:1", true)->text, "hi");
  EXPECT_EQ(parse_prompt(R"({"prompt": "hi", "max_tokens": 9, "id": 4})", "f:1", false)->max_tokens, 9);
  EXPECT_EQ(parse_prompt(R"({"messages": [{"role": "user", "content": "x"}]})", "f:1", true)->messages.items().size(),
            1u);
  const auto refused = [](const char* line, bool chat, const char* part) {
    const auto prompt = parse_prompt(line, "f:1", chat);
    ASSERT_FALSE(prompt.ok()) << line;
    EXPECT_THAT(prompt.status().message(), HasSubstr(part)) << line;
    EXPECT_THAT(prompt.status().message(), HasSubstr("f:1")) << line;
  };
  refused("12", true, "want a string or an object");
  refused("{}", true, "want one of prompt and messages");
  refused(R"({"prompt": "a", "messages": [1]})", true, "want one of prompt and messages");
  refused(R"({"messages": [1]})", false, "messages are for --endpoint chat");
  refused(R"({"messages": "x"})", true, "want a list of messages");
  refused(R"({"prompt": "a", "max_tokens": -1})", true, "max_tokens");
  refused("{\"prompt\": ", true, "");
}

TEST(Prompts, Files) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("cadre_prompts_" + std::to_string(getpid()));
  std::ofstream(path) << "\"one\"\n\n{\"prompt\": \"two\"}";
  const auto prompts = read_prompts(path, false);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ((*prompts)[1].text, "two");
  std::ofstream(path) << "\"one\"\nno\n";
  EXPECT_THAT(read_prompts(path, false).status().message(), HasSubstr(path.string() + ":2"));
  std::ofstream(path) << "\n";
  EXPECT_THAT(read_prompts(path, false).status().message(), HasSubstr("holds no prompts"));
  std::filesystem::remove(path);
  EXPECT_EQ(read_prompts(path, false).status().code(), Code::kNotFound);
  EXPECT_FALSE(read_prompts("/", false).ok());
}

TEST(Prompts, RandomWordsAreAsManyAsAskedAndTheSeeds) {
  LoadRandom a(1), b(1), c(2);
  const std::string text = random_words(500, a);
  std::istringstream in(text);
  int count = 0;
  for (std::string word; in >> word;) ++count;
  EXPECT_EQ(count, 500);
  EXPECT_EQ(text, random_words(500, b));
  EXPECT_NE(text, random_words(500, c));
}

TEST(Prompts, Bodies) {
  LoadOptions options;
  LoadPrompt prompt;
  prompt.text = "hi \"you\"";
  const auto chat = Json::parse(request_body(options, "base", prompt, 7), "body");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(*chat->get_string("model"), "base");
  EXPECT_EQ(*chat->get_int("max_tokens"), 7);
  EXPECT_TRUE(*chat->get_bool("stream"));
  EXPECT_TRUE(*chat->get_object("stream_options")->get_bool("include_usage"));
  EXPECT_EQ(*chat->get_array("messages")->front().get_string("content"), prompt.text);
  EXPECT_FALSE(chat->has("temperature") || chat->has("ignore_eos") || chat->has("prompt"));
  options.chat = false;
  options.ignore_eos = true;
  options.temperature = 0;
  const auto plain = Json::parse(request_body(options, "base", prompt, 7), "body");
  EXPECT_EQ(*plain->get_string("prompt"), prompt.text);
  EXPECT_TRUE(*plain->get_bool("ignore_eos"));
  EXPECT_DOUBLE_EQ(*plain->get_double("temperature"), 0);
  EXPECT_FALSE(plain->has("messages"));
}

}  // namespace
}  // namespace cadre::server
