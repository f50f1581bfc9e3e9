#include "cli/output.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/result.h"
#include "cli/dummy_model.h"

namespace cadre::cli {
namespace {

// 0, or the errno of the failure.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

void print_line(std::string_view before, std::string_view message) {
  std::string line(before);
  line += message;
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  line += '\n';
  write_all(STDERR_FILENO, line);
}

void draw_progress(double share) {
  constexpr int kWidth = 40;
  const int percent = static_cast<int>(std::clamp(share, 0.0, 1.0) * 100);
  const int done = percent * kWidth / 100;
  std::string line = "\rloading [" + std::string(static_cast<std::size_t>(done), '#') +
                     std::string(static_cast<std::size_t>(kWidth - done), '.') + "] " + std::to_string(percent) + " %";
  write_all(STDERR_FILENO, line);
}

}  // namespace

void Output::write(std::string_view text) {
  if (errno_ == 0) errno_ = write_all(STDOUT_FILENO, text);
}

int Output::exit_code(int status) const {
  if (errno_ == 0) return status;
  if (errno_ == EPIPE) return kExitOutputClosed;
  print_line("cadre: error: ", std::string("writing standard output: ") + std::strerror(errno_));
  return kExitOutputFailed;
}

TextBlock::TextBlock(Output& out, std::string_view label, std::size_t label_columns, std::size_t columns)
    : out_(out), indent_(label_columns, ' '), columns_(columns), on_terminal_(isatty(STDOUT_FILENO) == 1) {
  // A window too narrow for words: let the terminal break the lines.
  if (columns_ < label_columns + 20) columns_ = 0;
  if (label_columns == 0) return;
  std::string head(label);
  const std::size_t width = display_columns(label);
  if (width < label_columns) head.append(label_columns - width, ' ');
  out_.write(head);
  column_ = label_columns;
}

void TextBlock::write(std::string_view text) {
  if (indent_.empty() && !on_terminal_) {
    put(text);
    return;
  }
  if (!on_terminal_) {
    // Nothing to break: only the indent after each line end.
    std::string line;
    for (const char c : text) {
      if (column_ == 0 && c != '\n') line += indent_;
      line += c;
      column_ = c == '\n' ? 0 : 1;
    }
    out_.write(line);
    return;
  }
  for (const char c : text) {
    if (c == '\n') {
      flush_word();
      spaces_.clear();
      out_.write("\n");
      column_ = 0;
    } else if (c == ' ' || c == '\t') {
      flush_word();
      spaces_ += ' ';
    } else {
      // A model may write escape sequences: they must not reach a terminal.
      word_ += is_control(c) ? '?' : c;
    }
  }
  // Scripts without spaces make words without end: those go out as they are.
  constexpr std::size_t kLongWord = 120;
  if (indent_.empty() || word_.size() > kLongWord) flush_word();
}

void TextBlock::put(std::string_view text) {
  if (text.empty()) return;
  out_.write(text);
  column_ = text.back() == '\n' ? 0 : 1;
}

void TextBlock::flush_word() {
  if (word_.empty()) return;
  const std::size_t width = display_columns(word_);
  std::string line;
  if (!indent_.empty()) {
    if (columns_ > 0 && column_ > indent_.size() && column_ + spaces_.size() + width > columns_) {
      line += '\n';
      column_ = 0;
      spaces_.clear();
    }
    if (column_ == 0) {
      line += indent_;
      column_ = indent_.size();
    }
  }
  line += spaces_ + word_;
  column_ += spaces_.size() + width;
  spaces_.clear();
  word_.clear();
  out_.write(line);
}

void TextBlock::finish() {
  flush_word();
  if (column_ > 0) out_.write("\n");
  column_ = 0;
}

std::size_t display_columns(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    utf8proc_int32_t c = 0;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                    static_cast<utf8proc_ssize_t>(text.size()), &c);
    columns += n <= 0 ? 1 : static_cast<std::size_t>(std::max(0, utf8proc_charwidth(c)));
    text.remove_prefix(n <= 0 ? 1 : static_cast<std::size_t>(n));
  }
  return columns;
}

std::size_t terminal_columns() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

int report(const Status& status) {
  print_line("cadre: error: ", status.message());
  return code_info(status.code()).exit_code;
}

void note(std::string_view message) { print_line("cadre: ", message); }

Result<std::unique_ptr<Engine>> open_engine(EngineOptions options) {
  const bool bar = stderr_is_terminal();
  if (bar) {
    options.progress = [last = -1](double share) mutable {
      const int percent = static_cast<int>(share * 100);
      if (percent != last) draw_progress(share);
      last = percent;
    };
  }
  Result<std::unique_ptr<Engine>> engine = Engine::open(std::move(options));
  drop_dummy_folders();
  if (bar) write_all(STDERR_FILENO, "\r\033[K");
  if (engine.ok()) {
    for (const std::string& text : (*engine)->notes()) note("note: " + text);
  }
  return engine;
}

}  // namespace cadre::cli
