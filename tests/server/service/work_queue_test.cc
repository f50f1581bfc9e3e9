#include "server/service/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace cadre::server {
namespace {

TEST(WorkQueue, RunsAllAndFinishesWhatWaits) {
  std::atomic<int> done = 0;
  WorkQueue queue(3, 1000);
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(queue.post([&] { ++done; }));
  queue.stop();
  EXPECT_EQ(done, 500);
  EXPECT_FALSE(queue.post([&] { ++done; })) << "it has stopped";
}

TEST(WorkQueue, IsBounded) {
  std::promise<void> go;
  const std::shared_future<void> wait = go.get_future().share();
  std::promise<void> begun;
  WorkQueue queue(1, 2);
  ASSERT_TRUE(queue.post([&begun, wait] {
    begun.set_value();
    wait.wait();
  }));
  begun.get_future().wait();
  EXPECT_TRUE(queue.post([] {}));
  EXPECT_TRUE(queue.post([] {}));
  EXPECT_FALSE(queue.post([] {}));
  go.set_value();
}

// A piece of work that fails must not end the program.
TEST(WorkQueue, SurvivesExceptions) {
  std::atomic<int> done = 0;
  WorkQueue queue(1, 10);
  EXPECT_TRUE(queue.post([] { throw std::bad_alloc(); }));
  EXPECT_TRUE(queue.post([&] { ++done; }));
  queue.stop();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace cadre::server
