#include "server/service/work_queue.h"

#include <exception>
#include <utility>

namespace cadre::server {

WorkQueue::WorkQueue(int threads, std::size_t most) : most_(most) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

bool WorkQueue::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= most_) return false;
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
  return true;
}

void WorkQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkQueue::run() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      work();
    } catch (const std::exception&) {
      // No memory, for the most part. What `work` held is gone, so a reply it owed says so on its own.
    }
  }
}

}  // namespace cadre::server
