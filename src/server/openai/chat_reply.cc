// chat.completion and chat.completion.chunk.
#include <optional>
#include <utility>

#include "server/openai/ending.h"
#include "server/openai/reply.h"
#include "server/openai/tool_call_parser.h"

namespace cadre::server {
namespace {

// What an event adds to a choice.
struct Delta {
  std::string content;
  std::vector<Json> tool_calls;  // {"id", "type", "function"}
  std::vector<Json> logprobs;
  bool empty() const { return content.empty() && tool_calls.empty() && logprobs.empty(); }
};

class ChatReply final : public Reply {
 public:
  ChatReply(const ChatRequest& request, ReplyInfo info, const PromptTokens& prompt, TokenText token_text)
      : Reply({.info = std::move(info),
               .object = "chat.completion",
               .chunk_object = "chat.completion.chunk",
               .n = static_cast<std::size_t>(request.n),
               .prompt_tokens = static_cast<std::int64_t>(prompt.ids.size()),
               .stream = request.stream,
               .include_usage = request.include_usage,
               .continuous_usage = request.continuous_usage}),
        token_text_(std::move(token_text)),
        top_logprobs_(request.sampling.logprobs),
        prompt_top_(request.prompt_logprobs),
        parse_tools_(request.parse_tools),
        parallel_tools_(request.parallel_tools),
        stop_token_ids_(request.sampling.stop_token_ids),
        choices_(static_cast<std::size_t>(request.n)) {
    // A prompt of one token has none to report but the first's null.
    if (prompt_top_) prompt_logprobs_ = prompt_logprobs({}, *prompt_top_, token_text_);
  }

 private:
  struct Choice {
    Json stop_reason;
    ToolCallParser tools;
    std::int64_t calls = 0;
    bool started = false;
    FinishReason finish = FinishReason::kNone;
    Delta whole;  // of whole replies: all deltas in a row
  };

  std::vector<Json> take(std::size_t index, const Event& event) override {
    Choice& choice = choices_[index];
    Delta delta = next(index, event);
    if (!stream()) {
      choice.whole.content += delta.content;
      for (Json& call : delta.tool_calls) choice.whole.tool_calls.push_back(std::move(call));
      for (Json& item : delta.logprobs) choice.whole.logprobs.push_back(std::move(item));
      return {};
    }
    std::vector<Json> out;
    if (!std::exchange(choice.started, true)) {
      out.push_back(Json::object({{"index", index},
                                  {"delta", Json::object({{"role", "assistant"}, {"content", ""}})},
                                  {"logprobs", nullptr},
                                  {"finish_reason", nullptr}}));
    }
    if (!delta.empty() || choice.finish != FinishReason::kNone) out.push_back(chunk(index, std::move(delta)));
    return out;
  }

  Delta next(std::size_t index, const Event& event) {
    Choice& choice = choices_[index];
    Delta delta;
    choice.finish = event.finish;
    choice.stop_reason = stop_reason(event, stop_token_ids_);
    if (top_logprobs_ && !event.logprobs.empty()) {
      delta.logprobs.push_back(chat_logprob(event.logprobs, *top_logprobs_, token_text_));
    }
    if (prompt_top_ && !event.prompt_logprobs.empty() && index == 0) {
      prompt_logprobs_ = prompt_logprobs(event.prompt_logprobs, *prompt_top_, token_text_);
    }
    if (!parse_tools_) {
      delta.content = event.text;
      return delta;
    }
    add_pieces(index, choice.tools.feed(event.text), delta);
    if (event.finish != FinishReason::kNone) add_pieces(index, choice.tools.flush(), delta);
    return delta;
  }

  void add_pieces(std::size_t index, const std::vector<ToolPiece>& pieces, Delta& delta) {
    for (const ToolPiece& piece : pieces) {
      if (const std::string* text = std::get_if<std::string>(&piece)) {
        delta.content += *text;
        continue;
      }
      std::int64_t& calls = choices_[index].calls;
      if (calls > 0 && !parallel_tools_) continue;
      const auto& call = std::get<ToolCall>(piece);
      delta.tool_calls.push_back(
          Json::object({{"id", call_id(index, calls)},
                        {"type", "function"},
                        {"function", Json::object({{"name", call.name}, {"arguments", call.arguments}})}}));
      ++calls;
    }
  }

  // Of the reply's own id, which is unique.
  std::string call_id(std::size_t index, std::int64_t call) const {
    const std::string& id = info().id;
    return "call_" + id.substr(id.find('-') + 1) + "_" + std::to_string(index) + "_" + std::to_string(call);
  }

  Json chunk(std::size_t index, Delta delta) const {
    const Choice& choice = choices_[index];
    std::vector<Json::Member> members;
    // Log-probabilities of text that is held back come with empty content, as clients expect one.
    if (!delta.content.empty() || !delta.logprobs.empty()) members.emplace_back("content", std::move(delta.content));
    if (!delta.tool_calls.empty()) {
      std::vector<Json> calls;
      std::int64_t number = choice.calls - static_cast<std::int64_t>(delta.tool_calls.size());
      for (const Json& call : delta.tool_calls) {
        std::vector<Json::Member> call_members = {{"index", number++}};
        call_members.insert(call_members.end(), call.members().begin(), call.members().end());
        calls.push_back(Json::object(std::move(call_members)));
      }
      members.emplace_back("tool_calls", Json::array(std::move(calls)));
    }
    std::vector<Json::Member> out = {{"index", index},
                                     {"delta", Json::object(std::move(members))},
                                     {"logprobs", logprobs_of(std::move(delta.logprobs))}};
    add_ending(choice, out);
    return Json::object(std::move(out));
  }

  Json whole_choice(std::size_t index) const override {
    const Choice& choice = choices_[index];
    const bool only_calls = choice.whole.content.empty() && choice.calls > 0;
    std::vector<Json::Member> message = {
        {"role", "assistant"}, {"content", only_calls ? Json() : Json(choice.whole.content)}, {"refusal", nullptr}};
    if (choice.calls > 0) message.emplace_back("tool_calls", Json::array(choice.whole.tool_calls));
    std::vector<Json::Member> out = {{"index", index},
                                     {"message", Json::object(std::move(message))},
                                     {"logprobs", top_logprobs_ ? all_logprobs(choice.whole.logprobs) : Json()}};
    add_ending(choice, out);
    return Json::object(std::move(out));
  }

  static Json all_logprobs(std::vector<Json> items) {
    return Json::object({{"content", Json::array(std::move(items))}, {"refusal", nullptr}});
  }
  static Json logprobs_of(std::vector<Json> items) { return items.empty() ? Json() : all_logprobs(std::move(items)); }

  static void add_ending(const Choice& choice, std::vector<Json::Member>& out) {
    const bool completed = choice.finish == FinishReason::kStop || choice.finish == FinishReason::kLength;
    out.emplace_back("finish_reason", choice.calls > 0 && completed ? "tool_calls" : finish_reason(choice.finish));
    if (choice.finish != FinishReason::kNone) out.emplace_back("stop_reason", choice.stop_reason);
  }

  std::vector<Json::Member> further_members() const override {
    if (!prompt_top_) return {};
    return {{"prompt_logprobs", prompt_logprobs_}};
  }

  TokenText token_text_;
  std::optional<std::int32_t> top_logprobs_, prompt_top_;
  bool parse_tools_, parallel_tools_;
  std::vector<std::int32_t> stop_token_ids_;
  std::vector<Choice> choices_;
  Json prompt_logprobs_;
};

}  // namespace

std::unique_ptr<Reply> chat_reply(const ChatRequest& request, ReplyInfo info, const PromptTokens& prompt,
                                  TokenText token_text) {
  return std::make_unique<ChatReply>(request, std::move(info), prompt, std::move(token_text));
}

}  // namespace cadre::server
