// cadre run: one prompt, answered by the base model, by an adapter, or by several side by side in one batch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <utility>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/turns.h"
#include "io/json.h"

namespace cadre::cli {
namespace {

// Far beyond any context; keeps a wrong file name from filling the memory.
constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

Result<std::string> read_prompt(const std::string& path) {
  std::ifstream file;
  const bool from_stdin = path == "-";
  if (!from_stdin) file.open(path, std::ios::binary);
  std::istream& in = from_stdin ? std::cin : file;
  if (!in) return error(Code::kNotFound, "--file: cannot open '", path, "'");
  std::error_code ignored;
  if (!from_stdin && std::filesystem::is_directory(path, ignored)) {
    return error(Code::kInvalidArgument, "--file: '", path, "' is a folder, want a file, or - for standard input");
  }
  std::string text;
  char piece[1 << 16];
  while (in.read(piece, sizeof piece) || in.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxPromptBytes) {
      return error(Code::kLimitExceeded, "--file: '", path, "' has more than ", kMaxPromptBytes, " bytes");
    }
  }
  if (in.bad()) return error(Code::kInvalidFile, "--file: cannot read '", path, "'");
  return text;
}

std::string shown_name(const Answer& answer) { return answer.adapter.empty() ? "base" : answer.adapter; }

std::string json_line(const Answer& answer, const Engine& engine, double load_s) {
  const double rate = answer.tokens_per_s();
  const Json timing = Json::object({{"load_s", load_s},
                                    {"prefill_s", answer.prefill_s},
                                    {"decode_s", answer.decode_s},
                                    {"prompt_tokens", answer.prompt_ids.size()},
                                    {"tokens", answer.ids.size()},
                                    {"tokens_per_s", rate > 0 ? Json(rate) : Json()}});
  return Json::object({{"adapter", answer.adapter.empty() ? Json() : Json(answer.adapter)},
                       {"prompt_ids", Json::array(answer.prompt_ids)},
                       {"ids", Json::array(answer.ids)},
                       {"text", answer.text},
                       {"finish_reason", to_string(answer.finish)},
                       {"backend", engine.backend_names()},
                       {"timing", timing}})
             .dump() +
         "\n";
}

std::string ids_text(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

// Shows answers in their order while all are made at once: the first that is not complete goes out as it comes, those
// after it wait.
class Show {
 public:
  Show(const RunCommand& command, const Engine& engine, double load_s, Output& out, const std::vector<Answer>& answers)
      : json_(command.json),
        with_text_(command.engine.need_tokenizer),
        engine_(engine),
        load_s_(load_s),
        out_(out),
        answers_(answers) {
    // Names beyond this would leave too little room for the text.
    constexpr std::size_t kMaxLabel = 20;
    if (answers.size() < 2) return;
    for (const Answer& answer : answers) {
      label_columns_ = std::max(label_columns_, std::min(kMaxLabel, display_columns(shown_name(answer))) + 2);
    }
  }

  void advance() {
    while (at_ < answers_.size()) {
      const Answer& answer = answers_[at_];
      const bool complete = answer.finish != FinishReason::kNone;
      if (json_) {
        if (!complete) return;
        out_.write(json_line(answer, engine_, load_s_));
      } else {
        if (!block_) {
          const std::string label = label_columns_ > 0 ? shown_name(answer) + "  " : "";
          block_.emplace(out_, label, label_columns_, terminal_columns());
        }
        if (with_text_) block_->write(std::string_view(answer.text).substr(shown_));
        shown_ = answer.text.size();
        if (!complete) return;
        if (!with_text_) block_->write(ids_text(answer.ids));
        block_->finish();
        block_.reset();
      }
      ++at_;
      shown_ = 0;
    }
  }

 private:
  const bool json_, with_text_;
  const Engine& engine_;
  const double load_s_;
  Output& out_;
  const std::vector<Answer>& answers_;
  std::size_t label_columns_ = 0;
  std::size_t at_ = 0;     // the answer being shown
  std::size_t shown_ = 0;  // bytes of its text
  std::optional<TextBlock> block_;
};

Result<std::vector<Answer>> submit_all(Engine& engine, const RunCommand& command, Request request) {
  std::vector<Answer> answers;
  for (const std::string& adapter : command.use) {
    request.adapter = adapter;
    Result<Answer> answer = submit(engine, request);
    if (!answer.ok()) return std::move(answer).status();
    answers.push_back(*std::move(answer));
  }
  return answers;
}

}  // namespace

int execute(const RunCommand& command) {
  Request request = command.request;
  if (!command.prompt_file.empty()) {
    Result<std::string> text = read_prompt(command.prompt_file);
    if (!text.ok()) return report(text.status());
    request.prompt = *std::move(text);
  }
  const auto start = std::chrono::steady_clock::now();
  Result<std::unique_ptr<Engine>> opened = open_engine(command.engine);
  if (!opened.ok()) return report(opened.status());
  Engine& engine = **opened;
  if (command.verbose) {
    for (const std::string& line : start_lines(engine.selection())) note(line);
  }
  const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  Result<std::vector<Answer>> submitted = submit_all(engine, command, std::move(request));
  if (!submitted.ok()) return report(submitted.status());
  std::vector<Answer>& answers = *submitted;

  Output out;
  const InterruptScope scope;
  Show show(command, engine, load_s, out, answers);
  if (const Status status = generate(engine, answers, out, [&](Answer&, std::string_view) { show.advance(); });
      !status.ok()) {
    return report(status);
  }
  if (!out.ok()) return out.exit_code(0);
  int code = 0;
  for (const Answer& answer : answers) {
    if (answer.finish != FinishReason::kError) continue;
    Status failure = answer.error;
    if (answers.size() > 1) failure = std::move(failure).with_context(shown_name(answer));
    code = report(failure);
  }
  const bool cut = std::any_of(answers.begin(), answers.end(),
                               [](const Answer& answer) { return answer.finish == FinishReason::kCancelled; });
  if (cut) note("interrupted");
  // A speed beside an error would look like success.
  if (code != 0) return cut ? kExitInterrupted : code;
  char load[32];
  std::snprintf(load, sizeof load, ", loaded in %.2f s", load_s);
  double rehearsal_s = 0;
  for (const LayerReport& layers : engine.selection()) rehearsal_s += layers.rehearsal_seconds;
  char rehearsal[40] = "";
  if (rehearsal_s > 0) std::snprintf(rehearsal, sizeof rehearsal, " (rehearsal %.2f s)", rehearsal_s);
  note(speed_text(engine, answers) + load + rehearsal);
  return cut ? kExitInterrupted : 0;
}

}  // namespace cadre::cli
