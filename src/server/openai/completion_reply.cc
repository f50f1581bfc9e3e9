// text_completion, whole and in chunks of the same form.
#include <optional>
#include <utility>

#include "server/openai/ending.h"
#include "server/openai/reply.h"

namespace cadre::server {
namespace {

std::int64_t count_ids(const std::vector<PromptTokens>& prompts) {
  std::size_t count = 0;
  for (const PromptTokens& prompt : prompts) count += prompt.ids.size();
  return static_cast<std::int64_t>(count);
}

class CompletionReply final : public Reply {
 public:
  CompletionReply(const CompletionRequest& request, ReplyInfo info, std::vector<PromptTokens> prompts,
                  TokenText token_text)
      : Reply({.info = std::move(info),
               .object = "text_completion",
               .chunk_object = "text_completion",
               .prompts = prompts.size(),
               .n = static_cast<std::size_t>(request.n),
               .prompt_tokens = count_ids(prompts),
               .stream = request.stream,
               .include_usage = request.include_usage,
               .continuous_usage = request.continuous_usage,
               .count_tokens = !request.prompt_only}),
        token_text_(std::move(token_text)),
        prompts_(std::move(prompts)),
        n_(static_cast<std::size_t>(request.n)),
        echo_(request.echo),
        prompt_only_(request.prompt_only),
        top_logprobs_(request.sampling.logprobs),
        prompt_top_(request.prompt_logprobs),
        stop_token_ids_(request.sampling.stop_token_ids),
        choices_(prompts_.size() * n_, Choice(request.sampling)) {}

 private:
  struct Choice {
    explicit Choice(const SamplingRequest& sampling) : logprobs(sampling.logprobs.value_or(0)) {}
    Json stop_reason;
    CompletionLogprobs logprobs;
    bool started = false;
    FinishReason finish = FinishReason::kNone;
    std::string text;      // of whole replies
    Json whole_logprobs;   // of whole replies, once finished
    Json prompt_logprobs;  // vLLM's
  };

  std::vector<Json> take(std::size_t index, const Event& event) override {
    Choice& choice = choices_[index];
    const PromptTokens& prompt = prompts_[index / n_];
    std::string text;
    if (!std::exchange(choice.started, true)) {
      if (echo_) text = prompt.text;
      if (echo_ && top_logprobs_) add_prompt(choice, prompt, event);
      if (prompt_top_) choice.prompt_logprobs = prompt_logprobs(event.prompt_logprobs, *prompt_top_, token_text_);
    }
    choice.finish = event.finish;
    if (!prompt_only_) {
      text += event.text;
      choice.stop_reason = stop_reason(event, stop_token_ids_);
      if (top_logprobs_ && !event.logprobs.empty()) choice.logprobs.add(event.logprobs, token_text_);
    }
    const bool ended = event.finish != FinishReason::kNone;
    if (!stream()) {
      choice.text += text;
      if (ended && top_logprobs_) choice.whole_logprobs = choice.logprobs.take();
      return {};
    }
    if (text.empty() && choice.logprobs.empty() && !ended) return {};
    return {piece(index, std::move(text), choice.logprobs.empty() ? Json() : choice.logprobs.take())};
  }

  void add_prompt(Choice& choice, const PromptTokens& prompt, const Event& event) const {
    for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
      const bool known = i > 0 && i - 1 < event.prompt_logprobs.size() && !event.prompt_logprobs[i - 1].empty();
      if (known) {
        choice.logprobs.add(event.prompt_logprobs[i - 1], token_text_);
      } else {
        choice.logprobs.add_unknown(prompt.ids[i], token_text_);
      }
    }
  }

  Json piece(std::size_t index, std::string text, Json logprobs) const {
    const Choice& choice = choices_[index];
    // Of a prompt alone, the limit of no token ended it, whatever the one that was left out would have been.
    const bool cut = prompt_only_ && choice.finish == FinishReason::kStop;
    std::vector<Json::Member> out = {{"index", index},
                                     {"text", std::move(text)},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", finish_reason(cut ? FinishReason::kLength : choice.finish)}};
    if (choice.finish != FinishReason::kNone) out.emplace_back("stop_reason", choice.stop_reason);
    return Json::object(std::move(out));
  }

  Json whole_choice(std::size_t index) const override {
    const Choice& choice = choices_[index];
    const Json out = piece(index, choice.text, choice.whole_logprobs);
    if (!prompt_top_) return out;
    std::vector<Json::Member> members(out.members().begin(), out.members().end());
    members.emplace_back("prompt_logprobs", choice.prompt_logprobs);
    return Json::object(std::move(members));
  }

  TokenText token_text_;
  std::vector<PromptTokens> prompts_;
  std::size_t n_;
  bool echo_, prompt_only_;
  std::optional<std::int32_t> top_logprobs_, prompt_top_;
  std::vector<std::int32_t> stop_token_ids_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Reply> completion_reply(const CompletionRequest& request, ReplyInfo info,
                                        std::vector<PromptTokens> prompts, TokenText token_text) {
  return std::make_unique<CompletionReply>(request, std::move(info), std::move(prompts), std::move(token_text));
}

}  // namespace cadre::server
