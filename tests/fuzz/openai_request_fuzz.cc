// Any bytes as the body of every route: refused in OpenAI's form, or a request that keeps its limits. The same bytes as
// generated text: tool calls do not depend on how it was cut, streamed and whole replies agree.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json.h"
#include "server/openai/reply.h"
#include "server/openai/request.h"
#include "server/openai/tool_call_parser.h"

namespace {

using namespace cadre::server;
using cadre::Json;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const ApiError& error) {
  require(error.status == 400 || error.status == 413);
  require(!error.message.empty() && error.message.size() < 2000);
  const auto json = Json::parse(error.body(), "error");
  require(json.ok() && json->find("error")->has("message"));
}

void check_generation(const GenerationRequest& request, const RequestLimits& limits) {
  require(request.n >= 1 && request.n <= limits.max_n);
  require(request.sampling.logprobs.value_or(0) <= limits.max_logprobs);
  require(request.prompt_logprobs.value_or(0) <= limits.max_logprobs);
  require(request.sampling.max_tokens.value_or(1) >= 1);
  require(request.sampling.stop.size() <= cadre::kMaxStopStrings);
}

void check_chat(const cadre::ChatInput& chat) {
  const auto messages = Json::parse(chat.messages_json, "messages");
  require(messages.ok() && !messages->items().empty());
  for (const Json& message : messages->items()) require(message.has("role") && message.find("content")->is_string());
  if (!chat.tools_json.empty()) require(Json::parse(chat.tools_json, "tools").ok());
  if (!chat.kwargs_json.empty()) require(Json::parse(chat.kwargs_json, "kwargs")->is_object());
}

void parse_bodies(std::string_view body) {
  const RequestLimits limits{.max_values = 20000, .max_n = 8, .max_prompts = 16, .max_choices = 64};
  if (const auto chat = parse_chat_request(body, limits); chat.ok()) {
    check_generation(*chat, limits);
    check_chat(chat->chat);
  } else {
    check_error(chat.error());
  }
  if (const auto completion = parse_completion_request(body, limits); completion.ok()) {
    check_generation(*completion, limits);
    require(!completion->prompts.empty() && completion->prompts.size() <= limits.max_prompts);
  } else {
    check_error(completion.error());
  }
  if (const auto request = parse_tokenize_request(body, limits); !request.ok()) check_error(request.error());
  if (const auto request = parse_detokenize_request(body, limits); !request.ok()) check_error(request.error());
  if (const auto request = parse_load_adapter_request(body, limits); !request.ok()) check_error(request.error());
  if (const auto request = parse_unload_adapter_request(body, limits); !request.ok()) check_error(request.error());
}

struct Parsed {
  std::string all;   // in order
  std::string text;  // without the calls
  int calls = 0;
  bool operator==(const Parsed&) const = default;
};

void append(Parsed& out, const std::vector<ToolPiece>& pieces) {
  for (const ToolPiece& piece : pieces) {
    if (const auto* call = std::get_if<ToolCall>(&piece)) {
      const auto arguments = Json::parse(call->arguments, "arguments");
      require(!call->name.empty() && arguments.ok() && arguments->is_object());
      out.all += "\1" + call->name + "\2" + call->arguments + "\3";
      ++out.calls;
    } else {
      out.all += std::get<std::string>(piece);
      out.text += std::get<std::string>(piece);
    }
  }
}

// Cut lengths from a generator seeded by the text itself, so that a case can be replayed.
std::vector<std::string_view> cut(std::string_view text) {
  std::vector<std::string_view> out;
  std::uint32_t state = 2166136261u;
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 16777619u;
  while (!text.empty()) {
    state = state * 1664525u + 1013904223u;
    const std::size_t length = std::min<std::size_t>(text.size(), 1 + (state >> 24) % 13);
    out.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

void parse_tools(std::string_view text) {
  Parsed whole;
  ToolCallParser one;
  append(whole, one.feed(text));
  append(whole, one.flush());
  Parsed pieces;
  ToolCallParser many;
  for (const std::string_view piece : cut(text)) append(pieces, many.feed(piece));
  append(pieces, many.flush());
  require(whole == pieces);
  if (whole.calls == 0) require(whole.text == text);
}

// Content and calls of the text as a chat reply, streamed and whole.
void reply(std::string_view text) {
  const auto token_text = [](std::int32_t) { return std::string("\xff"); };
  std::string whole, streamed;
  for (const bool stream : {false, true}) {
    ChatRequest request;
    request.stream = stream;
    request.parse_tools = true;
    request.sampling.logprobs = 1;
    const auto answer =
        chat_reply(request, {.id = "chatcmpl-1", .created = 1, .model = "m", .fingerprint = ""}, {}, token_text);
    std::string sent;
    for (const std::string_view piece : cut(text)) {
      cadre::Event event;
      event.token = 1;
      event.text = piece;
      event.logprobs = {{1, -1.0f}, {2, -2.0f}};
      sent += answer->feed(0, event);
    }
    cadre::Event last;
    last.finish = cadre::FinishReason::kStop;
    sent += answer->feed(0, last);
    require(answer->done());
    sent += answer->finish();
    if (!stream) {
      const auto body = Json::parse(answer->body(), "body");
      require(body.ok() && sent.empty());
      const Json& message = *body->find("choices")->items()[0].find("message");
      if (message.has("content")) whole = *message.get_string("content");
      if (message.has("tool_calls")) {
        for (const Json& call : message.find("tool_calls")->items()) whole += call.find("function")->dump();
      }
      continue;
    }
    std::string calls;
    std::string_view left = sent;
    while (left.starts_with("data: {")) {
      const std::size_t end = left.find("\n\n");
      const auto chunk = Json::parse(left.substr(6, end - 6), "chunk");
      require(chunk.ok());
      const Json& delta = *chunk->find("choices")->items()[0].find("delta");
      if (delta.has("content")) streamed += *delta.get_string("content");
      if (delta.has("tool_calls")) {
        for (const Json& call : delta.find("tool_calls")->items()) calls += call.find("function")->dump();
      }
      left.remove_prefix(end + 2);
    }
    require(left == kStreamEnd);
    streamed += calls;
  }
  require(whole == streamed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  parse_bodies(bytes);
  parse_tools(bytes);
  // The engine's texts are whole characters; what is cut here anywhere needs ASCII to stay the same through JSON.
  std::string ascii(bytes.substr(0, 1024));  // each piece is a chunk of its own, which takes a while
  for (char& c : ascii) c = static_cast<char>(c & 0x7f);
  reply(ascii);
  return 0;
}
