#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace cadre {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (std::int64_t n : {0, 1, 7, 1000}) {
      for (std::int64_t grain : {1, 3, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
        pool.parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
        });
        for (auto& count : seen) EXPECT_EQ(count.load(), 1);
      }
    }
  }
}

}  // namespace
}  // namespace cadre
