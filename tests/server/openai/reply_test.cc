#include "server/openai/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "server/openai/api_error.h"
#include "server/openai/compact.h"

namespace cadre::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// Tokens of the tests: an id's text. 8 and 9 are the halves of "é".
std::string token_text(std::int32_t id) {
  static const std::map<std::int32_t, std::string> kTexts = {{1, "Hello"},
                                                             {2, " world"},
                                                             {3, "!"},
                                                             {8, "\xc3"},
                                                             {9, "\xa9"},
                                                             {100, "<|end|>"},
                                                             {20, "<tool_call>"},
                                                             {21, R"({"name": "f", "arguments": {"a": 1}})"},
                                                             {22, "</tool_call>"},
                                                             {23, "\n"}};
  return kTexts.at(id);
}

Json parsed(std::string_view text) {
  Result<Json> json = Json::parse(text, "reply", {.duplicates = JsonParseOptions::Duplicates::kRefuse});
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

// Data of server-sent events; "[DONE]" as a string.
std::vector<Json> chunks_of(std::string_view sent) {
  std::vector<Json> out;
  while (!sent.empty()) {
    EXPECT_TRUE(sent.starts_with("data: ")) << sent;
    const std::size_t end = sent.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    if (end == std::string_view::npos) return out;
    const std::string_view data = sent.substr(6, end - 6);
    EXPECT_EQ(data.find('\n'), std::string_view::npos);
    out.push_back(data == "[DONE]" ? Json("[DONE]") : parsed(data));
    sent.remove_prefix(end + 2);
  }
  return out;
}

// By a path such as "choices.0.delta.content"; null where there is nothing.
Json at(const Json& json, std::string_view path) {
  Json value = json;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string key(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (value.is_array()) {
      const std::size_t i = std::stoul(key);
      value = i < value.items().size() ? Json(value.items()[i]) : Json();
    } else {
      const Json* member = value.find(key);
      value = member != nullptr ? Json(*member) : Json();
    }
  }
  return value;
}
std::string text_at(const Json& json, std::string_view path) { return compact(at(json, path).dump()); }

ReplyInfo info() { return {.id = "chatcmpl-0123", .created = 1700000000, .model = "m", .fingerprint = "fp"}; }

Event event(std::optional<std::int32_t> token, std::string text, FinishReason finish = FinishReason::kNone) {
  Event e;
  e.token = token;
  e.text = std::move(text);
  e.finish = finish;
  return e;
}

struct Sent {
  std::size_t choice;
  Event event;
};

struct Answer {
  Json whole;
  std::vector<Json> chunks;
};

// The same events to a whole and to a streamed reply.
Answer answer_chat(ChatRequest request, const std::vector<Sent>& events) {
  Answer out;
  for (const bool stream : {false, true}) {
    request.stream = stream;
    const auto reply = chat_reply(request, info(), {.ids = {5, 6, 7}, .text = ""}, token_text);
    std::string sent;
    for (const Sent& s : events) {
      EXPECT_FALSE(reply->done());
      sent += reply->feed(s.choice, s.event);
    }
    EXPECT_TRUE(reply->done());
    sent += reply->finish();
    if (stream) {
      out.chunks = chunks_of(sent);
    } else {
      EXPECT_EQ(sent, "");
      out.whole = parsed(reply->body());
    }
  }
  return out;
}

Answer answer_completion(CompletionRequest request, const std::vector<PromptTokens>& prompts,
                         const std::vector<Sent>& events) {
  Answer out;
  for (const bool stream : {false, true}) {
    request.stream = stream;
    const auto reply =
        completion_reply(request, {.id = "cmpl-1", .created = 5, .model = "m", .fingerprint = ""}, prompts, token_text);
    std::string sent;
    for (const Sent& s : events) sent += reply->feed(s.choice, s.event);
    EXPECT_TRUE(reply->done());
    sent += reply->finish();
    if (stream) {
      out.chunks = chunks_of(sent);
    } else {
      out.whole = parsed(reply->body());
    }
  }
  return out;
}

std::vector<Sent> hello() {
  Event first = event(1, "Hello");
  first.cached_tokens = 2;
  return {{0, first}, {0, event(2, "")}, {0, event(3, " world!")}, {0, event(100, "", FinishReason::kStop)}};
}

TEST(ChatReply, Whole) {
  const Answer answer = answer_chat({}, hello());
  EXPECT_EQ(compact(answer.whole.dump()),
            R"({"id":"chatcmpl-0123","object":"chat.completion","created":1700000000,"model":"m",)"
            R"("system_fingerprint":"fp","choices":[{"index":0,"message":{"role":"assistant","content":"Hello world!",)"
            R"("refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,)"
            R"("prompt_tokens_details":{"cached_tokens":2}}})");
}

TEST(ChatReply, Chunks) {
  const std::vector<Json> chunks = answer_chat({}, hello()).chunks;
  ASSERT_EQ(chunks.size(), 5u);
  EXPECT_EQ(compact(chunks[0].dump()),
            R"({"id":"chatcmpl-0123","object":"chat.completion.chunk","created":1700000000,"model":"m",)"
            R"("system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":""},)"
            R"("logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(text_at(chunks[1], "choices.0"),
            R"({"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null})");
  EXPECT_EQ(text_at(chunks[2], "choices.0.delta.content"), "\" world!\"");
  EXPECT_EQ(text_at(chunks[3], "choices.0"),
            R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null})");
  EXPECT_EQ(compact(chunks[4].dump()), "\"[DONE]\"");
}

TEST(ChatReply, UsageOfStreams) {
  ChatRequest request;
  request.include_usage = true;
  std::vector<Json> chunks = answer_chat(request, hello()).chunks;
  ASSERT_EQ(chunks.size(), 6u);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(chunks[i].find("usage") && !chunks[i].has("usage"));
  EXPECT_EQ(text_at(chunks[4], "choices"), "[]");
  EXPECT_EQ(text_at(chunks[4], "usage"), R"({"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,)"
                                         R"("prompt_tokens_details":{"cached_tokens":2}})");
  request.include_usage = false;
  request.continuous_usage = true;
  chunks = answer_chat(request, hello()).chunks;
  ASSERT_EQ(chunks.size(), 5u);
  EXPECT_EQ(text_at(chunks[1], "usage.completion_tokens"), "1");
  EXPECT_EQ(text_at(chunks[3], "usage.completion_tokens"), "4");
}

Event with_logprobs(Event e, std::vector<TokenChance> chances) {
  e.logprobs = std::move(chances);
  return e;
}

TEST(ChatReply, Logprobs) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  ChatRequest request;
  request.sampling.logprobs = 2;
  const Answer answer = answer_chat(
      request,
      {{0, with_logprobs(event(8, ""), {{8, -0.5f}, {1, -0.25f}, {8, -0.5f}})},
       {0, with_logprobs(event(9, "\xc3\xa9", FinishReason::kLength), {{9, -1.0f}, {9, -1.0f}, {3, kNever}})}});
  const std::string want =
      R"([{"token":"�","logprob":-0.5,"bytes":[195],"top_logprobs":[)"
      R"({"token":"Hello","logprob":-0.25,"bytes":[72,101,108,108,111]},{"token":"�","logprob":-0.5,"bytes":[195]}]},)"
      R"({"token":"�","logprob":-1.0,"bytes":[169],"top_logprobs":[)"
      R"({"token":"�","logprob":-1.0,"bytes":[169]},{"token":"!","logprob":-9999.0,"bytes":[33]}]}])";
  EXPECT_EQ(text_at(answer.whole, "choices.0.logprobs.content"), want);
  EXPECT_EQ(text_at(answer.whole, "choices.0.finish_reason"), "\"length\"");
  // A token without text yet has a chunk for its log-probability.
  ASSERT_EQ(answer.chunks.size(), 4u);
  EXPECT_EQ(text_at(answer.chunks[1], "choices.0.delta"), R"({"content":""})");
  std::vector<Json> joined;
  for (const Json& chunk : answer.chunks) {
    for (const Json& item : at(chunk, "choices.0.logprobs.content").items()) joined.push_back(item);
  }
  EXPECT_EQ(compact(Json::array(joined).dump()), want);
}

TEST(ChatReply, PromptLogprobs) {
  ChatRequest request;
  request.prompt_logprobs = 1;
  Event first = event(1, "Hello", FinishReason::kLength);
  first.prompt_logprobs = {{{2, -3.0f}, {1, -0.5f}, {3, -4.0f}}, {{3, -0.25f}, {3, -0.25f}, {1, -5.0f}}};
  const Answer answer = answer_chat(request, {{0, first}});
  EXPECT_EQ(text_at(answer.whole, "prompt_logprobs"),
            R"([null,{"2":{"logprob":-3.0,"rank":null,"decoded_token":" world"},)"
            R"("1":{"logprob":-0.5,"rank":1,"decoded_token":"Hello"}},)"
            R"({"3":{"logprob":-0.25,"rank":1,"decoded_token":"!"}}])");
}

TEST(ChatReply, SeveralChoices) {
  ChatRequest request;
  request.n = 2;
  Event first = event(1, "Hello");
  first.cached_tokens = 2;
  Event second = event(3, "!");
  second.cached_tokens = 3;
  const Answer answer = answer_chat(request, {{1, second},
                                              {0, first},
                                              {1, event(100, "", FinishReason::kStop)},
                                              {0, event(2, " world", FinishReason::kLength)}});
  EXPECT_EQ(text_at(answer.whole, "choices.0.message.content"), "\"Hello world\"");
  EXPECT_EQ(text_at(answer.whole, "choices.1.message.content"), "\"!\"");
  EXPECT_EQ(text_at(answer.whole, "choices.1.index"), "1");
  EXPECT_EQ(text_at(answer.whole, "usage.prompt_tokens"), "3");
  EXPECT_EQ(text_at(answer.whole, "usage.completion_tokens"), "4");
  EXPECT_EQ(text_at(answer.whole, "usage.prompt_tokens_details.cached_tokens"), "2");
  std::map<std::string, std::string> streamed;
  int roles = 0;
  for (const Json& chunk : answer.chunks) {
    const Json content = at(chunk, "choices.0.delta.content");
    if (content.is_string()) streamed[text_at(chunk, "choices.0.index")] += *content.as_string("");
    roles += at(chunk, "choices.0.delta").has("role") ? 1 : 0;
  }
  EXPECT_EQ(streamed, (std::map<std::string, std::string>{{"0", "Hello world"}, {"1", "!"}}));
  EXPECT_EQ(roles, 2);
}

std::vector<Sent> two_calls(FinishReason finish = FinishReason::kStop) {
  std::vector<Sent> events;
  for (const std::int32_t id : {1, 23, 20, 21, 22, 23, 20, 23, 21, 23, 22}) {
    events.push_back({0, event(id, token_text(id))});
  }
  events.push_back({0, event(100, "", finish)});
  return events;
}

TEST(ChatReply, ToolCalls) {
  ChatRequest request;
  request.parse_tools = true;
  const Answer answer = answer_chat(request, two_calls());
  const std::string function = R"("type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}})";
  EXPECT_EQ(text_at(answer.whole, "choices.0.message"),
            R"({"role":"assistant","content":"Hello","refusal":null,"tool_calls":[{"id":"call_0123_0_0",)" + function +
                R"(,{"id":"call_0123_0_1",)" + function + "]}");
  EXPECT_EQ(text_at(answer.whole, "choices.0.finish_reason"), "\"tool_calls\"");
  std::string content;
  std::vector<std::string> calls;
  for (const Json& chunk : answer.chunks) {
    const Json delta = at(chunk, "choices.0.delta");
    if (delta.has("content")) content += *at(delta, "content").as_string("");
    for (const Json& call : at(delta, "tool_calls").items()) calls.push_back(compact(call.dump()));
  }
  EXPECT_EQ(content, "Hello");
  EXPECT_THAT(calls, testing::ElementsAre(R"({"index":0,"id":"call_0123_0_0",)" + function,
                                          R"({"index":1,"id":"call_0123_0_1",)" + function));
  EXPECT_EQ(text_at(answer.chunks[answer.chunks.size() - 2], "choices.0.finish_reason"), "\"tool_calls\"");

  request.parallel_tools = false;
  EXPECT_EQ(at(answer_chat(request, two_calls()).whole, "choices.0.message.tool_calls").items().size(), 1u);
  // A cut is no abort; who stopped the request from outside gets no calls to make.
  EXPECT_EQ(text_at(answer_chat(request, two_calls(FinishReason::kLength)).whole, "choices.0.finish_reason"),
            "\"tool_calls\"");
  EXPECT_EQ(text_at(answer_chat(request, two_calls(FinishReason::kCancelled)).whole, "choices.0.finish_reason"),
            "\"abort\"");
}

TEST(ChatReply, OnlyCallsHaveNoContent) {
  ChatRequest request;
  request.parse_tools = true;
  const Answer answer =
      answer_chat(request, {{0, event(20, "<tool_call>")}, {0, event(21, token_text(21), FinishReason::kStop)}});
  EXPECT_EQ(text_at(answer.whole, "choices.0.message.content"), "null");
  EXPECT_EQ(text_at(answer.whole, "choices.0.message.tool_calls.0.function.name"), "\"f\"");
}

TEST(ChatReply, WithoutToolsCallsAreText) {
  const Answer answer = answer_chat({}, two_calls());
  EXPECT_EQ(text_at(answer.whole, "choices.0.finish_reason"), "\"stop\"");
  EXPECT_THAT(text_at(answer.whole, "choices.0.message.content"), HasSubstr("<tool_call>"));
}

TEST(ChatReply, StopReasons) {
  ChatRequest request;
  request.sampling.stop_token_ids = {3};
  Event stopped = event(2, " wo", FinishReason::kStop);
  stopped.stop = "rld";
  EXPECT_EQ(text_at(answer_chat(request, {{0, event(1, "Hello")}, {0, stopped}}).whole, "choices.0.stop_reason"),
            "\"rld\"");
  EXPECT_EQ(text_at(answer_chat(request, {{0, event(1, "Hello")}, {0, event(3, "", FinishReason::kStop)}}).whole,
                    "choices.0.stop_reason"),
            "3");
  EXPECT_EQ(text_at(answer_chat(request, {{0, event(100, "", FinishReason::kStop)}}).whole, "choices.0.stop_reason"),
            "null");
  EXPECT_EQ(text_at(answer_chat(request, {{0, event(3, "!", FinishReason::kLength)}}).whole, "choices.0.stop_reason"),
            "null");
}

TEST(Reply, ErrorsInsideAStream) {
  ChatRequest request;
  request.n = 2;
  for (const bool stream : {true, false}) {
    request.stream = stream;
    const auto reply = chat_reply(request, info(), {}, token_text);
    std::string sent = reply->feed(0, event(1, "Hello"));
    Event broken = event(std::nullopt, "", FinishReason::kError);
    broken.error = Status(Code::kInternal, "logits are not finite");
    sent += reply->feed(1, broken);
    EXPECT_TRUE(reply->done());
    ASSERT_TRUE(reply->error());
    EXPECT_EQ(reply->error()->status, 500);
    EXPECT_EQ(reply->feed(0, event(2, " world", FinishReason::kStop)), "");
    EXPECT_EQ(reply->fail(api_error(500, "again")), "");
    EXPECT_EQ(reply->finish(), "");
    if (!stream) {
      EXPECT_EQ(sent, "");
      continue;
    }
    const std::vector<Json> chunks = chunks_of(sent);
    ASSERT_EQ(chunks.size(), 4u);
    EXPECT_EQ(compact(chunks[2].dump()),
              R"({"error":{"message":"logits are not finite","type":"server_error","param":null,)"
              R"("code":"internal"}})");
    EXPECT_EQ(compact(chunks[3].dump()), "\"[DONE]\"");
  }
}

TEST(CompletionReply, WholeAndChunks) {
  const Answer answer = answer_completion({}, {{.ids = {1, 2}, .text = "Hello world"}}, hello());
  EXPECT_EQ(compact(answer.whole.dump()),
            R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,)"
            R"("text":"Hello world!","logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
            R"("usage":{"prompt_tokens":2,"completion_tokens":4,"total_tokens":6,)"
            R"("prompt_tokens_details":{"cached_tokens":2}}})");
  ASSERT_EQ(answer.chunks.size(), 4u);
  EXPECT_EQ(compact(answer.chunks[0].dump()),
            R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,)"
            R"("text":"Hello","logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(text_at(answer.chunks[1], "choices.0.text"), "\" world!\"");
  EXPECT_EQ(text_at(answer.chunks[2], "choices.0.finish_reason"), "\"stop\"");
  EXPECT_EQ(compact(answer.chunks[3].dump()), "\"[DONE]\"");
}

TEST(CompletionReply, EchoWithLogprobs) {
  CompletionRequest request;
  request.echo = true;
  request.sampling.logprobs = 1;
  request.prompt_logprobs = 1;
  Event first = with_logprobs(event(8, ""), {{8, -0.5f}, {9, -0.25f}});
  first.prompt_logprobs = {{{2, -2.0f}, {3, -1.0f}}};
  Event last = with_logprobs(event(9, "\xc3\xa9", FinishReason::kLength), {{9, -1.0f}, {9, -1.0f}});
  const Answer answer = answer_completion(request, {{.ids = {1, 2}, .text = "Hello world"}}, {{0, first}, {0, last}});
  EXPECT_EQ(text_at(answer.whole, "choices.0.text"), "\"Hello worldé\"");
  const std::map<std::string, std::string> want = {
      {"tokens", R"(["Hello"," world","�","�"])"},
      {"token_logprobs", "[null,-2.0,-0.5,-1.0]"},
      {"text_offset", "[0,5,11,12]"},
      {"top_logprobs", R"([null,{"!":-1.0},{"�":-0.25},{"�":-1.0}])"},
  };
  for (const auto& [key, value] : want) {
    EXPECT_EQ(text_at(answer.whole, "choices.0.logprobs." + key), value);
    std::vector<Json> joined;
    for (const Json& chunk : answer.chunks) {
      for (const Json& item : at(chunk, "choices.0.logprobs." + key).items()) joined.push_back(item);
    }
    EXPECT_EQ(compact(Json::array(joined).dump()), value);
  }
  EXPECT_EQ(text_at(answer.whole, "choices.0.prompt_logprobs"),
            R"([null,{"2":{"logprob":-2.0,"rank":null,"decoded_token":" world"},)"
            R"("3":{"logprob":-1.0,"rank":1,"decoded_token":"!"}}])");
  std::string text;
  for (const Json& chunk : answer.chunks) {
    if (const Json piece = at(chunk, "choices.0.text"); piece.is_string()) text += *piece.as_string("");
  }
  EXPECT_EQ(text, "Hello world\xc3\xa9");
}

TEST(CompletionReply, TokensThatLookAlike) {
  CompletionRequest request;
  request.sampling.logprobs = 3;
  const Answer answer = answer_completion(
      request, {{}},
      {{0, with_logprobs(event(1, "Hello", FinishReason::kStop), {{1, -3.0f}, {8, -0.5f}, {9, -0.75f}, {2, -1.0f}})}});
  EXPECT_EQ(text_at(answer.whole, "choices.0.logprobs.top_logprobs"), R"([{"�":-0.5," world":-1.0}])");
}

TEST(CompletionReply, ThePromptAlone) {
  CompletionRequest request;
  request.echo = request.prompt_only = true;
  request.sampling.logprobs = 0;
  Event only = with_logprobs(event(3, "!", FinishReason::kStop), {{3, -0.5f}});
  only.prompt_logprobs = {{{2, -2.0f}}};
  const Answer answer = answer_completion(request, {{.ids = {1, 2}, .text = "Hello world"}}, {{0, only}});
  EXPECT_EQ(text_at(answer.whole, "choices.0"),
            R"({"index":0,"text":"Hello world","logprobs":{"text_offset":[0,5],"token_logprobs":[null,-2.0],)"
            R"("tokens":["Hello"," world"],"top_logprobs":[null,null]},"finish_reason":"length","stop_reason":null})");
  EXPECT_EQ(text_at(answer.whole, "usage.completion_tokens"), "0");
  EXPECT_EQ(text_at(answer.chunks[0], "choices"), text_at(answer.whole, "choices"));
}

TEST(CompletionReply, SeveralPromptsAndChoices) {
  CompletionRequest request;
  request.n = 2;
  request.echo = true;
  std::vector<Sent> events;
  for (const std::size_t choice : {3u, 0u, 2u, 1u}) {
    Event e = event(3, std::string(1, static_cast<char>('a' + choice)), FinishReason::kStop);
    e.cached_tokens = 1 + static_cast<std::int64_t>(choice);
    events.push_back({choice, e});
  }
  const Answer answer =
      answer_completion(request, {{.ids = {1}, .text = "P"}, {.ids = {1, 2, 3}, .text = "Q"}}, events);
  std::string texts;
  for (const Json& choice : at(answer.whole, "choices").items()) texts += *at(choice, "text").as_string("");
  EXPECT_EQ(texts, "PaPbQcQd");
  EXPECT_EQ(text_at(answer.whole, "usage.prompt_tokens"), "4");
  EXPECT_EQ(text_at(answer.whole, "usage.completion_tokens"), "4");
  EXPECT_EQ(text_at(answer.whole, "usage.prompt_tokens_details.cached_tokens"), "4");
}

TEST(Reply, Ids) {
  const std::string id = new_reply_id(kChatPrefix);
  EXPECT_EQ(id.size(), kChatPrefix.size() + 32);
  EXPECT_TRUE(id.starts_with("chatcmpl-"));
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef", kChatPrefix.size()), std::string::npos);
  EXPECT_NE(new_reply_id(kChatPrefix), id);
}

}  // namespace
}  // namespace cadre::server
