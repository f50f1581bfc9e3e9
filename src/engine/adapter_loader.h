// AdapterLoader: reads adapters that are on disk only, one at a time on a thread of its own, while batches go on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/loaded_adapter.h"

namespace cadre {

class AdapterLoader {
 public:
  using Read = std::function<Result<std::shared_ptr<ReadAdapter>>(const AdapterSource&)>;
  struct Done {
    AdapterRef adapter;
    Result<std::shared_ptr<ReadAdapter>> read;
  };

  // `read` runs on the loader's thread. What it refers to must outlive the loader.
  explicit AdapterLoader(Read read);
  ~AdapterLoader();  // waits for the file that is being read
  AdapterLoader(const AdapterLoader&) = delete;
  AdapterLoader& operator=(const AdapterLoader&) = delete;

  // Until what was started is taken.
  bool busy() const { return adapter_ != nullptr; }
  void start(AdapterRef adapter);  // not while busy
  std::optional<Done> take();      // nothing while it is still read
  // Whether there is something to take, after so long at most; at once where nothing is read.
  bool wait(std::chrono::milliseconds most);

 private:
  void run();

  const Read read_;
  AdapterRef adapter_;  // of the engine's thread, as all that is not under the mutex
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<AdapterSource> asked_;
  std::optional<Result<std::shared_ptr<ReadAdapter>>> result_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace cadre
