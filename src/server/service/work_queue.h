// WorkQueue: a few threads for work that would hold up the network's or the engine's: parsing, tokenising, templates,
// reading adapters. Bounded by the bytes that wait, because each piece holds a request's body; and tenants take turns,
// so that one with much to do does not make the others wait for all of it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cadre::server {

class WorkQueue {
 public:
  // `failed` hears of exceptions that leave a piece of work, which ends it.
  WorkQueue(int threads, std::size_t most_bytes, std::function<void(std::string_view what)> failed);
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // False, and `work` is not taken, where too much waits already or the queue has stopped. One piece is always taken
  // when nothing waits.
  bool post(const std::string& tenant, std::size_t bytes, std::function<void()> work);
  // Finishes what has begun, drops what has not, and ends the threads.
  void stop();

 private:
  struct Piece {
    std::size_t bytes = 0;
    std::function<void()> work;
  };
  void run();
  Piece take();

  const std::size_t most_bytes_;
  const std::function<void(std::string_view)> failed_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::map<std::string, std::deque<Piece>> waiting_;  // by tenant, none of them empty
  std::string last_;                                  // whose turn it was
  std::size_t bytes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cadre::server
