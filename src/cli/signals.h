// Ctrl-C and closed pipes.
#pragma once

#include <string>

namespace cadre::cli {

inline constexpr int kExitInterrupted = 130;  // as shells report a program that Ctrl-C ended

// To be called once, first thing. Ctrl-C then ends the program at once, saying so, with status 130. Writing to a closed
// pipe becomes an error of write() in place of a signal.
void install_signals();

// Where Ctrl-C or SIGTERM ends the program at once, these are removed first: files, or folders that are empty by then,
// in this order. A path that is too long for the table is left.
void remove_at_signal(const std::string& path);
void keep_at_signal();  // none of them any more

// While one lives, Ctrl-C only sets a flag, which the holder looks at; a second one, before the flag was cleared, ends
// the program by the signal.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};
bool interrupted();
void clear_interrupt();

// Waits until `fd` can be read without waiting, or is at its end. False if Ctrl-C came first, or before: unlike a check
// of the flag before a read, this cannot miss one. To be called inside an InterruptScope.
bool wait_readable(int fd);

}  // namespace cadre::cli
