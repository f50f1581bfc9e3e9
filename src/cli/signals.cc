#include "cli/signals.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

namespace cadre::cli {
namespace {

volatile sig_atomic_t asked = 0;    // an InterruptScope lives
volatile sig_atomic_t pressed = 0;  // Ctrl-C since it began, or since the flag was cleared
volatile sig_atomic_t terminal = 0;

// A signal handler cannot take memory, so the table is of a fixed size.
constexpr int kMaxPaths = 16;
constexpr size_t kPathBytes = 1024;
char paths[kMaxPaths][kPathBytes];
volatile sig_atomic_t path_count = 0;

void remove_paths() {
  for (int i = 0; i < path_count; ++i) {
    if (unlink(paths[i]) != 0) rmdir(paths[i]);
  }
}

void on_terminate(int) {
  remove_paths();
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);  // delivered when this handler returns
}

// Only calls that are safe inside a signal handler.
void on_interrupt(int) {
  if (asked == 0) {
    // "\r\033[K" removes what a progress bar has left on the line.
    static constexpr char kOnTerminal[] = "\r\033[Kcadre: interrupted\n";
    const char* text = terminal != 0 ? kOnTerminal : kOnTerminal + 4;
    const auto size = static_cast<size_t>(kOnTerminal + sizeof kOnTerminal - 1 - text);
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, size);
    remove_paths();
    _exit(kExitInterrupted);
  }
  if (pressed != 0) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);  // delivered when this handler returns
    return;
  }
  pressed = 1;
}

}  // namespace

void install_signals() {
  terminal = isatty(STDERR_FILENO);
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);

  struct sigaction before = {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;  // started in the background, where Ctrl-C is meant for others
  action.sa_handler = on_interrupt;          // no SA_RESTART: a read from the terminal shall return
  sigaction(SIGINT, &action, nullptr);
}

void remove_at_signal(const std::string& path) {
  const int at = path_count;
  if (at == kMaxPaths || path.size() >= kPathBytes) return;
  std::memcpy(paths[at], path.c_str(), path.size() + 1);
  path_count = at + 1;
  if (at > 0) return;
  struct sigaction before = {};
  sigaction(SIGTERM, nullptr, &before);
  if (before.sa_handler == SIG_DFL) signal(SIGTERM, on_terminate);
}

void keep_at_signal() {
  path_count = 0;
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler == on_terminate) signal(SIGTERM, SIG_DFL);
}

InterruptScope::InterruptScope() {
  pressed = 0;
  asked = 1;
}
InterruptScope::~InterruptScope() { asked = 0; }

bool interrupted() { return pressed != 0; }
void clear_interrupt() { pressed = 0; }

bool wait_readable(int fd) {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  // Held back outside of ppoll, so that one between the check and the wait is not lost.
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  sigset_t open = before;
  sigdelset(&open, SIGINT);
  pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
  while (pressed == 0 && ppoll(&entry, 1, nullptr, &open) < 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pressed == 0;
}

}  // namespace cadre::cli
