// Ctrl-C and closed pipes.
#pragma once

namespace cadre::cli {

inline constexpr int kExitInterrupted = 130;  // as shells report a program that Ctrl-C ended

// To be called once, first thing. Ctrl-C then ends the program at once, saying so, with status 130. Writing to a closed
// pipe becomes an error of write() in place of a signal.
void install_signals();

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

}  // namespace cadre::cli
