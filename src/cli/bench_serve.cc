// cadre bench serve: sends load to any server that speaks OpenAI's interface, and says how fast it answers.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "server/load/load_run.h"

namespace cadre::cli {
namespace {

// One line on a terminal, over and over.
class ProgressLine {
 public:
  explicit ProgressLine(std::int64_t all) : all_(all) {}
  ~ProgressLine() {
    if (drawn_) write("\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const server::LoadProgress& progress) {
    constexpr auto kPeriod = std::chrono::milliseconds(200);
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && now - last_ < kPeriod) return;
    last_ = now;
    drawn_ = true;
    std::string line = "\r\033[Ksent " + std::to_string(progress.sent);
    if (all_ > 0) line += " of " + std::to_string(all_);
    line += ", answered " + std::to_string(progress.answered);
    if (progress.failed > 0) line += ", failed " + std::to_string(progress.failed);
    write(line);
  }

 private:
  static void write(const std::string& text) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  std::int64_t all_;
  std::chrono::steady_clock::time_point last_;
  bool drawn_ = false;
};

Status save(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return {};
  return error(Code::kInvalidArgument, "--save-json: '", path, "' could not be written");
}

}  // namespace

int execute(const BenchServeCommand& command) {
  const InterruptScope scope;
  Result<server::LoadReport> run = Status(Code::kInternal, "not run");
  {
    ProgressLine line(command.load.num_prompts);
    server::LoadHooks hooks;
    hooks.stop = [] { return interrupted(); };
    if (stderr_is_terminal()) hooks.progress = [&](const server::LoadProgress& progress) { line.show(progress); };
    run = server::run_load(command.load, hooks);
  }
  if (!run.ok()) return report(run.status());
  for (const std::string& text : run->notes) note(text);
  Output out;
  const std::string json = server::to_json(*run).dump() + "\n";
  out.write(command.json ? json : server::to_text(*run));
  if (!command.save_file.empty()) {
    if (const Status status = save(command.save_file, json); !status.ok()) return report(status);
  }
  if (run->interrupted) return out.exit_code(kExitInterrupted);
  return out.exit_code(run->all.answered > 0 ? 0 : kExitNoAnswer);
}

}  // namespace cadre::cli
