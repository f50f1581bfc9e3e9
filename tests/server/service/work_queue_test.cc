#include "server/service/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <new>
#include <string>

namespace cadre::server {
namespace {

void ignore(std::string_view) {}

// A queue of one thread that is busy until `go`.
struct Busy {
  explicit Busy(std::size_t most_bytes) : queue(1, most_bytes, ignore) {
    std::promise<void> begun;
    EXPECT_TRUE(queue.post("", 0, [&begun, wait = go.get_future().share()] {
      begun.set_value();
      wait.wait();
    }));
    begun.get_future().wait();
  }
  std::promise<void> go;
  WorkQueue queue;
};

TEST(WorkQueue, RunsAll) {
  std::atomic<int> done = 0;
  WorkQueue queue(3, 1 << 20, ignore);
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(queue.post("", 1, [&] { ++done; }));
  while (done < 500) {
  }
  queue.stop();
  EXPECT_FALSE(queue.post("", 1, [&] { ++done; })) << "it has stopped";
}

TEST(WorkQueue, IsBoundedByBytes) {
  Busy busy(100);
  EXPECT_TRUE(busy.queue.post("", 1000, [] {})) << "one piece, however large";
  EXPECT_FALSE(busy.queue.post("", 1, [] {}));
  busy.go.set_value();
}

TEST(WorkQueue, TenantsTakeTurns) {
  Busy busy(1 << 20);
  std::string order;
  std::promise<void> done;
  for (int i = 0; i < 3; ++i) busy.queue.post("a", 1, [&] { order += 'a'; });
  for (int i = 0; i < 2; ++i) busy.queue.post("b", 1, [&] { order += 'b'; });
  busy.queue.post("c", 1, [&] { order += 'c'; });
  busy.queue.post("a", 1, [&] { done.set_value(); });
  busy.go.set_value();
  done.get_future().wait();
  EXPECT_EQ(order, "abcaba");
}

TEST(WorkQueue, DropsWhatHasNotBegun) {
  std::atomic<int> done = 0;
  const auto held = std::make_shared<int>(1);
  Busy busy(1 << 20);
  for (int i = 0; i < 5; ++i) busy.queue.post("", 1, [&done, held] { ++done; });
  EXPECT_EQ(held.use_count(), 6);
  std::thread stop([&] { busy.queue.stop(); });
  while (held.use_count() > 1) {
  }
  busy.go.set_value();
  stop.join();
  EXPECT_EQ(done, 0);
}

// A piece of work that fails must not end the program.
TEST(WorkQueue, SurvivesExceptions) {
  std::string heard;
  std::promise<void> done;
  WorkQueue queue(1, 1 << 20, [&](std::string_view what) { heard = what; });
  EXPECT_TRUE(queue.post("", 1, [] { throw std::bad_alloc(); }));
  EXPECT_TRUE(queue.post("", 1, [&] { done.set_value(); }));
  done.get_future().wait();
  EXPECT_EQ(heard, "std::bad_alloc");
}

}  // namespace
}  // namespace cadre::server
