// cadre serve: the model behind HTTP, until a signal ends it.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/signals.h"
#include "cli/turns.h"
#include "server/service/service.h"

namespace cadre::cli {
namespace {

constexpr int kExitCutOff = 1;  // replies were cut off at the end of --drain-timeout

// SIGTERM, SIGINT and SIGHUP as events for one thread. They are blocked in every other one, so it has to be made before
// any of those.
class SignalThread {
 public:
  SignalThread() {
    sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    thread_ = std::thread([this] { run(); });
  }
  ~SignalThread() {
    over_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR1);  // ends sigwait
    thread_.join();
  }
  // From now on a signal asks instead of ending the program at once.
  void serving() { serving_ = true; }
  // What to do next: SIGHUP, or SIGTERM for the end, also after `end`.
  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return hangup_ || end_; });
    if (end_) return SIGTERM;
    hangup_ = false;
    return SIGHUP;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
  }
  // Nothing is left that a second signal could cut off.
  void complete() { complete_ = true; }

 private:
  void run() {
    while (true) {
      int signal = 0;
      if (sigwait(&set_, &signal) != 0) continue;
      if (over_) return;
      if (signal == SIGUSR1) continue;
      if (!serving_) {
        if (signal == SIGHUP) continue;
        note("interrupted while starting");
        _exit(128 + signal);
      }
      const std::lock_guard lock(mutex_);
      if (signal == SIGHUP) {
        hangup_ = true;
      } else if (!std::exchange(end_, true)) {
        ended_ = Clock::now();
      } else if (!complete_ && Clock::now() - ended_ > kOneSignal) {
        note("stopped at once");
        _exit(128 + signal);
      }
      changed_.notify_all();
    }
  }

  using Clock = std::chrono::steady_clock;
  // Wrappers such as `timeout` signal the process and its group: the same wish, twice.
  static constexpr std::chrono::milliseconds kOneSignal{500};

  sigset_t set_;
  std::atomic<bool> over_ = false, serving_ = false, complete_ = false;
  Clock::time_point ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangup_ = false, end_ = false;
  std::thread thread_;
};

// Connections take descriptors, and the usual soft limit of 1,024 is for programs that use select().
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // a lower limit still works
}

std::string mib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

void banner(const ServeCommand& command, const Engine& engine) {
  note("model " + command.server.served_model_names.front() + " (" + engine.model_type() + "), context " +
       std::to_string(engine.max_model_len()) + " tokens");
  for (const std::string& line : start_lines(engine.selection())) note(line);
  const MemoryReport memory = engine.memory();
  note("memory: weights " + mib(memory.weights) + ", adapters " + mib(memory.adapters) + ", cache " +
       mib(memory.cache) + " for " + std::to_string(memory.cache_tokens) + " tokens, workspace " +
       mib(memory.workspace));
  for (const AdapterInfo& info : engine.adapters()) {
    char line[128];
    std::snprintf(line, sizeof line, ": rank %d, %s, read in %.0f ms, %s", info.max_rank, mib(info.bytes).c_str(),
                  info.load_seconds * 1e3,
                  info.slot >= 0 ? ("slot " + std::to_string(info.slot)).c_str() : "waits for a slot");
    note("adapter " + info.name + line);
  }
}

}  // namespace

int execute(const ServeCommand& command) {
  SignalThread signals;
  for (const std::string& line : command.notes) note(line);
  raise_file_limit();
  if (const Status status = server::Service::check(command.server); !status.ok()) return report(status);
  Result<std::unique_ptr<Engine>> engine = open_engine(command.engine);
  if (!engine.ok()) return report(engine.status());
  banner(command, **engine);
  Result<std::unique_ptr<server::Service>> started =
      server::Service::start(command.server, *std::move(engine), CADRE_VERSION);
  if (!started.ok()) return report(started.status());
  server::Service& service = **started;
  Status failure;
  service.on_failure([&](const Status& status) {
    failure = status;
    signals.end();
  });
  signals.serving();
  note("serving on http://" + service.address());
  while (signals.wait() == SIGHUP) service.reload();
  if (!failure.ok()) {
    service.stop(0);
    return report(failure);
  }
  note("shutting down: running replies may finish, a second signal stops at once");
  service.drain();
  const bool complete = service.stop(command.server.drain_timeout_s);
  signals.complete();
  note(complete ? "all replies are complete" : "replies were cut off after --drain-timeout");
  return complete ? 0 : kExitCutOff;
}

}  // namespace cadre::cli
