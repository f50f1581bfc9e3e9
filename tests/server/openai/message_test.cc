// Conversations, tools and template variables of chat requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/openai/compact.h"
#include "server/openai/request.h"

namespace cadre::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string messages_of(const std::string& messages) {
  const auto request = parse_chat_request(R"({"messages": )" + messages + "}");
  EXPECT_TRUE(request.ok()) << messages << ": " << (request.ok() ? "" : request.error().message);
  return request.ok() ? request->chat.messages_json : "";
}

TEST(Messages, AsTemplatesTakeThem) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([{"role": "system", "content": "s"}, {"content": "u", "role": "user", "name": "bob"}])",
       R"([{"role":"system","content":"s"},{"role":"user","content":"u","name":"bob"}])"},
      {R"([{"role": "developer", "content": ""}])", R"([{"role":"developer","content":""}])"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])",
       R"([{"role":"user","content":"a\nb"}])"},
      {R"([{"role": "user", "content": []}])", R"([{"role":"user","content":""}])"},
      // As OpenAI's client sends an earlier reply back.
      {R"([{"role": "assistant", "content": null, "refusal": null, "audio": null, "function_call": null,
            "annotations": [], "tool_calls": [{"id": "c1", "type": "function", "index": 0,
            "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [\"ä\"]}"}}]},
           {"role": "tool", "tool_call_id": "c1", "content": "42"}])",
       R"([{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",)"
       R"("function":{"name":"f","arguments":{"b":1,"a":["ä"]}}}]},{"role":"tool","content":"42","tool_call_id":"c1"}])"},
      {R"([{"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}},
            {"function": {"name": "g", "arguments": ""}}, {"function": {"name": "h"}}]}])",
       R"([{"role":"assistant","content":"x","tool_calls":[)"
       R"({"type":"function","function":{"name":"f","arguments":{"a":1}}},)"
       R"({"type":"function","function":{"name":"g","arguments":{}}},)"
       R"({"type":"function","function":{"name":"h","arguments":{}}}]}])"},
      {R"([{"role": "assistant", "content": "x", "reasoning_content": "r", "tool_calls": []}])",
       R"([{"role":"assistant","content":"x","reasoning_content":"r"}])"},
      {R"([{"role": "assistant", "content": "x", "reasoning": "r"}])",
       R"([{"role":"assistant","content":"x","reasoning_content":"r","reasoning":"r"}])"},
  };
  for (const auto& [sent, want] : cases) EXPECT_EQ(compact(messages_of(sent)), want);
}

struct Bad {
  std::string body;
  std::string param;
  std::string message;
};

TEST(Messages, Refused) {
  const std::vector<Bad> cases = {
      {R"({})", "messages", "is missing"},
      {R"({"messages": []})", "messages", "is empty"},
      {R"({"messages": "hi"})", "messages", "want an array"},
      {R"({"messages": ["hi"]})", "messages[0]", "is \"hi\", want an object"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role", "is missing"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "robot", "content": "a"}]})", "messages[1].role",
       "is \"robot\", want system"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content", "is missing"},
      {R"({"messages": [{"role": "user", "content": null}]})", "messages[0].content", "is missing"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content", "is 5"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
          {"type": "image_url", "image_url": {"url": "x"}}]}]})",
       "messages[0].content[1].type", "\"image_url\""},
      {R"({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]})",
       "messages[0].content[0].type", "\"input_audio\", want \"text\": this server reads text only"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0].text", "missing"},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})", "messages[0].content[0]", "want an object"},
      {R"({"messages": [{"role": "user", "content": "a", "prefix": true}]})", "messages[0].prefix", "not known"},
      {R"({"messages": [{"role": "user", "content": "a", "tool_call_id": "x"}]})", "messages[0].tool_call_id",
       "role tool"},
      {R"({"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}]})",
       "messages[0].tool_calls", "role assistant"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "want the JSON text of an object"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "want the JSON text of an object"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})",
       "messages[0].tool_calls[0].function.name", "missing"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})", "messages[0].tool_calls[0].function", "missing"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}]})",
       "messages[0].tool_calls[0].type", "\"custom\""},
  };
  for (const Bad& bad : cases) {
    const auto request = parse_chat_request(bad.body);
    ASSERT_FALSE(request.ok()) << bad.body;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_EQ(request.error().param, bad.param) << bad.body;
    EXPECT_THAT(request.error().message, AllOf(HasSubstr(bad.param), HasSubstr(bad.message))) << bad.body;
  }
}

constexpr char kTool[] = R"({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}})";

std::string with(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "hi"}], )" + fields + "}";
}

TEST(Tools, GivenToTheTemplate) {
  const std::string tools = R"("tools": [)" + std::string(kTool) + "]";
  const std::string want = R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  for (const std::string choice : {"", R"(, "tool_choice": "auto")", R"(, "tool_choice": null)"}) {
    const auto request = parse_chat_request(with(tools + choice));
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(compact(request->chat.tools_json), want);
    EXPECT_TRUE(request->parse_tools && request->parallel_tools);
  }
  const auto one = parse_chat_request(with(tools + R"(, "parallel_tool_calls": false)"));
  EXPECT_FALSE(one->parallel_tools);
  for (const std::string& none : {tools + R"(, "tool_choice": "none")", std::string(R"("tools": [])"),
                                  std::string(R"("tool_choice": "none")"), std::string(R"("tools": null)")}) {
    const auto request = parse_chat_request(with(none));
    ASSERT_TRUE(request.ok()) << none;
    EXPECT_EQ(request->chat.tools_json, "");
    EXPECT_FALSE(request->parse_tools);
  }
}

TEST(Tools, Refused) {
  const std::string tools = R"("tools": [)" + std::string(kTool) + "], ";
  const std::vector<Bad> cases = {
      {tools + R"("tool_choice": "required")", "tool_choice", "is \"required\", want \"auto\" or \"none\""},
      {tools + R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice",
       "the function \"f\""},
      {tools + R"("tool_choice": 5)", "tool_choice", "is 5"},
      {R"("tool_choice": "auto")", "tool_choice", "with 'tools'"},
      {R"("tools": {})", "tools", "want an array"},
      {R"("tools": [5])", "tools[0]", "want an object"},
      {R"("tools": [{"type": "function"}])", "tools[0].function", "missing"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", "\"web_search\""},
      {R"("tools": [{"type": "function", "function": {"name": "f", "strict": true}}])", "tools[0].function.strict",
       "does not constrain"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}])",
       "tools[0].function.parameters", "want an object"},
      {R"("functions": [{"name": "f"}])", "functions", "old form of 'tools'"},
      {R"("echo": true)", "echo", "/v1/completions"},
      {R"("modalities": ["text", "audio"])", "modalities", "has \"audio\""},
      {R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs", "'messages'"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs", "want an object"},
      {R"("top_logprobs": 3)", "top_logprobs", "'logprobs': true"},
      {R"("logprobs": 3)", "logprobs", "want true or false"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "is 21"},
      {R"("max_tokens": 3, "max_completion_tokens": 4)", "max_completion_tokens", "is 4 and max_tokens is 3"},
      {R"("prompt": "x")", "prompt", "not known"},
  };
  for (const Bad& bad : cases) {
    const auto request = parse_chat_request(with(bad.body));
    ASSERT_FALSE(request.ok()) << bad.body;
    EXPECT_EQ(request.error().param, bad.param) << bad.body;
    EXPECT_THAT(request.error().message, HasSubstr(bad.message)) << bad.body;
  }
}

TEST(Variables, Merged) {
  const auto request = parse_chat_request(
      with(R"("chat_template_kwargs": {"enable_thinking": true, "k": [1.5]}, "reasoning_effort": "low",
              "add_generation_prompt": false)"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(compact(request->chat.kwargs_json), R"({"enable_thinking":true,"k":[1.5],"reasoning_effort":"low"})");
  EXPECT_FALSE(request->chat.add_generation_prompt);
  EXPECT_EQ(parse_chat_request(with(R"("chat_template_kwargs": {})"))->chat.kwargs_json, "");
}

}  // namespace
}  // namespace cadre::server
