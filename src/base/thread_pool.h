// A fixed set of workers that run one loop at a time. With one thread no worker is started and loops run inline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace cadre {

class ThreadPool {
 public:
  // threads >= 1, the caller's thread included. Throws std::system_error, with nothing left running, where the system
  // starts fewer; `start` says so as a Status.
  explicit ThreadPool(int threads);
  static Result<std::unique_ptr<ThreadPool>> start(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) over [0, n) in pieces of at least `grain`, each index once, and returns when all are done.
  // Which thread runs a piece is not fixed, so a body must not let its result depend on the cut. One loop at a time:
  // calls from several threads wait for each other; a call from inside a body is a bug.
  void parallel_for(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void stop();
  void work();
  void run_pieces();

  std::vector<std::thread> workers_;
  std::mutex loop_mutex_;  // one loop at a time
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::uint64_t generation_ = 0;
  int active_ = 0;
  bool stopping_ = false;
  const std::function<void(std::int64_t, std::int64_t)>* body_ = nullptr;
  std::int64_t n_ = 0, piece_ = 0, next_ = 0;
};

}  // namespace cadre
