// WorkQueue: a few threads for work that would hold up the network's or the engine's: parsing, tokenising, templates,
// reading adapters. Bounded, because each piece holds a request's body.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cadre::server {

class WorkQueue {
 public:
  WorkQueue(int threads, std::size_t most);
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // False, and `work` is not taken, where too much waits already or the queue has stopped.
  bool post(std::function<void()> work);
  // Finishes what was posted, then ends the threads.
  void stop();

 private:
  void run();

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cadre::server
