// cadre chat: a conversation in the terminal, turn by turn.
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/nearest.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/turns.h"
#include "cli/values.h"

namespace cadre::cli {
namespace {

constexpr std::string_view kHelp =
    "/adapter NAME  answer under this adapter; base is the model without one; no NAME lists them\n"
    "/system TEXT   instructions before the conversation; no TEXT removes them\n"
    "/reset         forget the conversation\n"
    "/explain       which backend runs which MoE layer, and why\n"
    "/help          this list\n"
    "/exit          end; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that starts with // is sent with one slash less.\n";

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

// Lines of standard input. Unlike those of std::cin, waiting for one ends with Ctrl-C.
class LineReader {
 public:
  enum class Got { kLine, kEnd, kInterrupt, kTooLong };
  Got next(std::string* line) {
    while (true) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos || (ended_ && !buffer_.empty())) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end == std::string::npos ? end : end + 1);
        if (!line->empty() && line->back() == '\r') line->pop_back();
        return Got::kLine;
      }
      if (ended_) return Got::kEnd;
      if (buffer_.size() > kMaxLineBytes) return Got::kTooLong;
      if (!wait_readable(STDIN_FILENO)) return Got::kInterrupt;
      char piece[4096];
      const ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
      if (n < 0 && errno == EINTR) continue;
      ended_ = n <= 0;
      if (n > 0) buffer_.append(piece, static_cast<std::size_t>(n));
    }
  }

 private:
  std::string buffer_;
  bool ended_ = false;
};

class Chat {
 public:
  Chat(Engine& engine, const ChatCommand& command)
      : engine_(engine),
        adapters_(command.engine.adapters),
        sampling_(command.sampling),
        adapter_(command.adapter),
        system_(command.system),
        interactive_(isatty(STDIN_FILENO) == 1) {}

  int loop() {
    if (interactive_)
      note("model " + engine_.model_type() + ", " + shown_adapter() + "; /help lists what you can type");
    std::string line;
    while (out_.ok()) {
      if (interactive_) out_.write("> ");
      switch (reader_.next(&line)) {
        case LineReader::Got::kEnd:
          if (interactive_) out_.write("\n");
          return out_.exit_code(first_error_);
        case LineReader::Got::kTooLong:
          return report(error(Code::kLimitExceeded, "a line has more than ", kMaxLineBytes, " bytes"));
        case LineReader::Got::kInterrupt:
          if (!interactive_) {
            note("interrupted");
            return kExitInterrupted;
          }
          clear_interrupt();
          out_.write("\n");
          note("Ctrl-D or /exit ends");
          continue;
        case LineReader::Got::kLine:
          break;
      }
      if (line.empty()) continue;
      if (line.starts_with("//")) {
        turn(line.substr(1));
      } else if (line.starts_with('/')) {
        if (!order(line)) return out_.exit_code(first_error_);
      } else {
        turn(line);
      }
    }
    return out_.exit_code(first_error_);
  }

 private:
  std::string shown_adapter() const { return adapter_.empty() ? "no adapter" : "adapter " + adapter_; }

  // In a terminal the user sees the message and goes on; a script learns of the first failure by the exit status.
  void failed(const Status& status) {
    const int code = report(status);
    if (!interactive_ && first_error_ == 0) first_error_ = code;
  }

  void turn(std::string text) {
    Request request;
    request.adapter = adapter_;
    request.sampling = sampling_;
    if (!system_.empty()) request.chat.push_back({"system", system_});
    request.chat.insert(request.chat.end(), history_.begin(), history_.end());
    request.chat.push_back({"user", text});
    Result<Answer> submitted = submit(engine_, std::move(request));
    if (!submitted.ok()) {
      failed(submitted.status());
      if (submitted.status().code() == Code::kLimitExceeded && !history_.empty()) {
        note("the conversation does not fit any more; /reset starts a new one");
      }
      return;
    }
    Answer& answer = *submitted;
    TextBlock block(out_, "", 0, terminal_columns());
    const Status status =
        generate(engine_, {&answer, 1}, out_, [&](Answer&, std::string_view new_text) { block.write(new_text); });
    block.finish();
    if (!status.ok()) {
      failed(status);
      return;
    }
    if (answer.finish == FinishReason::kError) {
      failed(answer.error);
      return;
    }
    if (answer.finish == FinishReason::kCancelled) {
      // This Ctrl-C has had its effect. One that came too late for the answer has it at the prompt.
      if (interactive_) clear_interrupt();
      note("interrupted");
    }
    if (stderr_is_terminal()) note(speed_text(engine_, {&answer, 1}));
    // What was shown is what was said, an answer that was stopped included.
    history_.push_back({"user", std::move(text)});
    history_.push_back({"assistant", answer.text});
  }

  // A line that starts with a slash; false ends the chat.
  bool order(const std::string& line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string word = line.substr(1, space - 1);
    const std::size_t begin = line.find_first_not_of(' ', space);
    std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    rest.erase(rest.find_last_not_of(' ') + 1);
    if (word == "exit" || word == "quit") return false;
    if (word == "help") {
      out_.write(kHelp);
    } else if (word == "reset") {
      history_.clear();
      note("a new conversation");
    } else if (word == "system") {
      system_ = rest;
      note(rest.empty() ? "no system text" : "system text set");
    } else if (word == "explain") {
      out_.write(explain_text(engine_.selection()));
    } else if (word == "adapter") {
      switch_adapter(rest);
    } else {
      static const std::string kWords[] = {"adapter", "explain", "reset", "system", "help", "exit"};
      failed(error(Code::kInvalidArgument, "unknown command '/", word, "'", nearest_hint(word, kWords),
                   " (/help lists them; // sends a line that starts with a slash)"));
    }
    return true;
  }

  void switch_adapter(const std::string& name) {
    if (name.empty()) {
      out_.write((adapter_.empty() ? "* " : "  ") + std::string("base\n"));
      for (const AdapterSource& adapter : adapters_) {
        out_.write((adapter.name == adapter_ ? "* " : "  ") + adapter.name + "\n");
      }
      return;
    }
    const bool known = std::any_of(adapters_.begin(), adapters_.end(), [&](const auto& a) { return a.name == name; });
    if (!known && name != "base") {
      failed(error(Code::kNotFound, "no adapter is named '", name, "' (known: ", adapter_names(adapters_), ")"));
      return;
    }
    adapter_ = name == "base" ? "" : name;
    note(shown_adapter());
  }

  Engine& engine_;
  const std::vector<AdapterSource>& adapters_;
  const SamplingRequest& sampling_;
  std::string adapter_, system_;
  std::vector<ChatMessage> history_;
  const bool interactive_;
  LineReader reader_;
  Output out_;
  int first_error_ = 0;
};

}  // namespace

int execute(const ChatCommand& command) {
  Result<std::unique_ptr<Engine>> opened = open_engine(command.engine);
  if (!opened.ok()) return report(opened.status());
  if (command.verbose) {
    for (const std::string& line : start_lines((*opened)->selection())) note(line);
  }
  const InterruptScope scope;
  return Chat(**opened, command).loop();
}

}  // namespace cadre::cli
