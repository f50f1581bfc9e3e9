// Service: an engine behind HTTP. Starts everything, and ends it in the right order.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/service/serve_options.h"

namespace cadre::server {

class Service {
 public:
  // Checks keys and folders, reads the adapters of --adapter-dir and begins to listen. `version` is the program's.
  static Result<std::unique_ptr<Service>> start(ServeOptions options, std::unique_ptr<Engine> engine,
                                                std::string version);
  // What can be checked before a model is loaded, which may take minutes: keys, folders, and that the address is free.
  static Status check(const ServeOptions& options);
  virtual ~Service() = default;  // stops at once

  virtual std::string address() const = 0;  // "127.0.0.1:8000"
  // Reads the keys and the adapter folder again (SIGHUP). Does not wait for it.
  virtual void reload() = 0;
  // Takes no more requests. Running replies go on.
  virtual void drain() = 0;
  // Waits at most `wait_s` for running replies, then ends. Whether all were complete.
  virtual bool stop(double wait_s) = 0;
  // Called once, on some thread, where the engine fails: nothing can be served any more.
  virtual void on_failure(std::function<void(const Status&)> call) = 0;
};

}  // namespace cadre::server
