#include "cli/turns.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/result.h"
#include "cli/signals.h"

namespace cadre::cli {
namespace {

std::string rate_text(double tokens, double seconds) {
  if (tokens <= 0 || seconds <= 0) return "- tok/s";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f tok/s", tokens / seconds);
  return text;
}

// Logits that are not finite end an answer by kInvalidFile.
Status with_hint(const Status& error) {
  if (error.code() != Code::kInvalidFile || error.message().find("--check-weights") != std::string::npos) return error;
  return Status(error.code(), error.message() + "; --check-weights says whether a tensor of the model does");
}

}  // namespace

double Answer::tokens_per_s() const {
  return ids.size() < 2 || decode_s <= 0 ? 0 : static_cast<double>(ids.size() - 1) / decode_s;
}

Result<Answer> submit(Engine& engine, Request request) {
  Answer answer;
  answer.adapter = request.adapter;
  CADRE_ASSIGN(answer.prompt_ids, engine.prompt_ids(request));
  request.prompt.reset();
  request.chat.clear();
  request.prompt_ids = answer.prompt_ids;
  CADRE_ASSIGN(answer.request, engine.submit(std::move(request)));
  return answer;
}

Status generate(Engine& engine, std::span<Answer> answers, const Output& out, const OnEvent& on_event) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  bool cancelled = false;
  while (!engine.idle()) {
    if (!cancelled && (interrupted() || !out.ok())) {
      for (const Answer& answer : answers) engine.cancel(answer.request);
      cancelled = true;
    }
    CADRE_ASSIGN(const std::vector<Event> events, engine.step());
    const double now = std::chrono::duration<double>(Clock::now() - start).count();
    for (const Event& event : events) {
      const auto answer =
          std::find_if(answers.begin(), answers.end(), [&](const Answer& a) { return a.request == event.request; });
      if (answer == answers.end()) continue;
      if (event.token) {
        if (answer->ids.empty()) answer->prefill_s = now;
        answer->ids.push_back(*event.token);
        answer->decode_s = now - answer->prefill_s;
      }
      answer->text += event.text;
      answer->finish = event.finish;
      answer->error = with_hint(event.error);
      on_event(*answer, event.text);
    }
  }
  return {};
}

std::string speed_text(const Engine& engine, std::span<const Answer> answers) {
  std::size_t prompt = 0, tokens = 0, later = 0;  // later: after each answer's first
  double prefill_end = 0, decode_begin = 0, decode_end = 0;
  bool first = true;
  for (const Answer& answer : answers) {
    prompt += answer.prompt_ids.size();
    tokens += answer.ids.size();
    if (answer.ids.empty()) continue;
    later += answer.ids.size() - 1;
    prefill_end = std::max(prefill_end, answer.prefill_s);
    decode_begin = first ? answer.prefill_s : std::min(decode_begin, answer.prefill_s);
    decode_end = std::max(decode_end, answer.prefill_s + answer.decode_s);
    first = false;
  }
  const std::string backends = engine.backend_names();
  const char* what = answers.size() == 1 ? " tokens at " : " tokens together at ";
  return std::to_string(tokens) + (tokens == 1 ? " token at " : what) +
         rate_text(static_cast<double>(later), decode_end - decode_begin) + ", prompt of " + std::to_string(prompt) +
         " at " + rate_text(static_cast<double>(prompt), prefill_end) +
         (backends.empty() ? ", no MoE layers" : ", backend " + backends);
}

}  // namespace cadre::cli
