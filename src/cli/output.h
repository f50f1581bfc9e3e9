// What the user sees: answers on standard output, everything else on standard error.
#pragma once

#include <cadre/engine.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace cadre::cli {

// Exit codes that are not those of code_info.
inline constexpr int kExitNotUsable = 1;       // `adapter check`: the adapter does not fit the model
inline constexpr int kExitNoAnswer = 1;        // `bench serve`: no request was answered
inline constexpr int kExitOutputFailed = 74;   // standard output could not be written
inline constexpr int kExitOutputClosed = 141;  // the reader of standard output went away, e.g. `| head`

// Standard output. Every write goes out at once. After a failed one nothing more is written.
class Output {
 public:
  void write(std::string_view text);
  bool ok() const { return errno_ == 0; }
  // `status`, or what the failure of a write means. Says why, except for a reader that went away.
  int exit_code(int status) const;

 private:
  int errno_ = 0;
};

// Text of a model as it arrives. With a label every line is indented by the label's column, and where `columns` is not
// 0 long lines are broken between words:
//   elements  Au, number 79
class TextBlock {
 public:
  TextBlock(Output& out, std::string_view label, std::size_t label_columns, std::size_t columns);
  void write(std::string_view text);
  // Ends the last line. To be called once, last.
  void finish();

 private:
  void put(std::string_view text);
  void flush_word();

  Output& out_;
  std::string indent_;
  std::size_t columns_;  // of a line; 0: as long as it gets
  std::size_t column_ = 0;
  std::string spaces_, word_;  // not written yet
  bool on_terminal_;
};

// Columns that `text` takes on a terminal.
std::size_t display_columns(std::string_view text);
// Columns of the terminal on standard output; 0 where there is none.
std::size_t terminal_columns();
bool stderr_is_terminal();

// "cadre: error: MESSAGE", one line on standard error; returns the exit code.
int report(const Status& status);
// "cadre: MESSAGE", one line on standard error.
void note(std::string_view message);

// Opens the engine, with a progress bar on standard error where that is a terminal, and prints its notes.
Result<std::unique_ptr<Engine>> open_engine(EngineOptions options);

}  // namespace cadre::cli
