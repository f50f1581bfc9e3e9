// Sends a load to a server and measures the answers.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <functional>

#include "server/load/load_report.h"

namespace cadre::server {

struct LoadProgress {
  std::int64_t sent = 0, answered = 0, failed = 0;
};

struct LoadHooks {
  std::function<bool()> stop;  // asked many times a second; true ends the load with what is there
  std::function<void(const LoadProgress&)> progress;
};

// An error only where nothing could be sent: a bad URL, a file of prompts that cannot be read, no server. Requests that
// fail are figures of the report.
Result<LoadReport> run_load(const LoadOptions& options, const LoadHooks& hooks);

}  // namespace cadre::server
