#include "server/service/work_queue.h"

#include <exception>
#include <utility>

namespace cadre::server {

WorkQueue::WorkQueue(int threads, std::size_t most_bytes, std::function<void(std::string_view what)> failed)
    : most_bytes_(most_bytes), failed_(std::move(failed)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

bool WorkQueue::post(const std::string& tenant, std::size_t bytes, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || (!waiting_.empty() && bytes_ + bytes > most_bytes_)) return false;
    waiting_[tenant].push_back({bytes, std::move(work)});
    bytes_ += bytes;
  }
  ready_.notify_one();
  return true;
}

void WorkQueue::stop() {
  std::map<std::string, std::deque<Piece>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(waiting_);
  }
  ready_.notify_all();
  dropped.clear();  // outside the lock: replies go with them
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

WorkQueue::Piece WorkQueue::take() {
  auto next = waiting_.upper_bound(last_);
  if (next == waiting_.end()) next = waiting_.begin();
  last_ = next->first;
  Piece piece = std::move(next->second.front());
  next->second.pop_front();
  if (next->second.empty()) waiting_.erase(next);
  bytes_ -= piece.bytes;
  return piece;
}

void WorkQueue::run() {
  while (true) {
    Piece piece;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      piece = take();
    }
    try {
      piece.work();
    } catch (const std::exception& e) {
      failed_(e.what());  // a reply that it owed says so on its own when it goes
    }
  }
}

}  // namespace cadre::server
