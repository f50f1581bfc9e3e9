#include "base/thread_pool.h"

#include <algorithm>

namespace cadre {

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {
    stop();  // a constructor that throws runs no destructor, and members must not go while workers wait on them
    throw;
  }
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::start(int threads) {
  try {
    return std::make_unique<ThreadPool>(threads);
  } catch (const std::exception& e) {
    return error(Code::kOutOfMemory, "cannot start ", threads, " threads: ", e.what(), "; use fewer (--threads)");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
    }
    run_pieces();
    {
      std::lock_guard lock(mutex_);
      if (--active_ == 0) done_.notify_one();
    }
  }
}

void ThreadPool::run_pieces() {
  while (true) {
    std::int64_t begin = 0, end = 0;
    {
      std::lock_guard lock(mutex_);
      if (next_ >= n_) return;
      begin = next_;
      end = std::min(n_, begin + piece_);
      next_ = end;
    }
    (*body_)(begin, end);
  }
}

void ThreadPool::parallel_for(std::int64_t n, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  if (workers_.empty() || n <= grain) {
    body(0, n);
    return;
  }
  std::lock_guard loop_lock(loop_mutex_);
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    n_ = n;
    next_ = 0;
    // Four pieces a thread evens out cores of unequal speed; more only costs lock traffic.
    piece_ = std::max(grain, (n + threads() * 4 - 1) / (threads() * 4));
    active_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  start_.notify_all();
  run_pieces();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return active_ == 0; });
  body_ = nullptr;
}

}  // namespace cadre
