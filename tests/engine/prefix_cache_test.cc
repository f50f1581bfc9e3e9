#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/exec_fixture.h"

namespace cadre {
namespace {

const std::vector<StateSpec> kPaged = {{.kind = StateSpec::Kind::kPagedKv, .kv_heads = 1, .head_dim = 2}};
const std::vector<StateSpec> kMixed = {
    {.kind = StateSpec::Kind::kPagedKv, .kv_heads = 1, .head_dim = 2},
    {.kind = StateSpec::Kind::kRecurrent, .channels = 3, .width = 4, .heads = 2, .ssm_head_dim = 2, .state = 2}};

std::vector<std::int32_t> tokens(std::int64_t n, int seed = 0) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>(i * 7 + seed));
  return ids;
}

// A sequence as the scheduler runs it: takes what is known, computes the rest, shows what it has.
struct Walker {
  Walker(PrefixCache& a_cache, StatePool& a_pool) : cache(a_cache), pool(a_pool) {}
  std::int64_t start(const PrefixCache::Key& key, const std::vector<std::int32_t>& ids) {
    const PrefixCache::Match match = cache.find(key, ids, static_cast<std::int64_t>(ids.size()) - 1);
    state.pages = match.pages;
    at = match.at;
    const auto length = static_cast<std::int64_t>(ids.size());
    cache.make_room((length + kPageSize - 1) / kPageSize - static_cast<std::int64_t>(match.pages.size()));
    EXPECT_TRUE(pool.reserve(state, length));
    for (std::int64_t page = match.tokens / kPageSize; (page + 1) * kPageSize <= length; ++page) {
      at = cache.extend(at, std::span(ids).subspan(static_cast<std::size_t>(page * kPageSize), kPageSize),
                        &state.pages[static_cast<std::size_t>(page)]);
    }
    return match.tokens;
  }
  void stop() {
    cache.leave(at);
    pool.release(state);
  }
  PrefixCache& cache;
  StatePool& pool;
  SequenceState state;
  PrefixCache::Node* at = nullptr;
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  test::TestExec run{test::Machine{"cpu", 1}, 1 << 20};
};

TEST_F(PrefixCacheTest, WholePagesOfTheSameVersionAndSaltAreShared) {
  auto pool = StatePool::make(*run.exec.device, kPaged, 20, 8);
  ASSERT_TRUE(pool.ok());
  {
    PrefixCache cache(*pool, false);
    Walker a(cache, *pool), b(cache, *pool), other(cache, *pool), salted(cache, *pool);
    EXPECT_EQ(a.start({}, tokens(40)), 0);
    EXPECT_EQ(b.start({}, tokens(40)), 32) << "two whole pages";
    EXPECT_EQ(b.state.pages[0], a.state.pages[0]);
    EXPECT_EQ(b.state.pages[1], a.state.pages[1]);
    EXPECT_NE(b.state.pages[2], a.state.pages[2]) << "what grows is its own";
    EXPECT_EQ(other.start({.adapter_version = 1}, tokens(40)), 0);
    EXPECT_EQ(salted.start({.salt = "x"}, tokens(40)), 0);
    // Nor is what other backends computed.
    const PrefixCache::Match after = cache.find({.generation = 1}, tokens(40), 39);
    EXPECT_EQ(after.common, 0);
    cache.leave(after.at);
    EXPECT_EQ(cache.idle_pages(), 0);
    for (Walker* w : {&a, &b, &other, &salted}) w->stop();
    EXPECT_EQ(cache.idle_pages(), 6);
    EXPECT_EQ(pool->free_pages(), 14);

    Walker exact(cache, *pool);
    EXPECT_EQ(exact.start({}, tokens(32)), 16) << "a token is left to compute";
    exact.stop();
    auto changed = tokens(40);
    changed[20] = 1;
    Walker parted(cache, *pool);
    EXPECT_EQ(parted.start({}, changed), 16);
    parted.stop();

    cache.forget(1);
    EXPECT_EQ(cache.idle_pages(), 5) << "the version's two pages are gone, the changed page came";
    cache.make_room(20);
    EXPECT_EQ(pool->free_pages(), 20);
  }
  EXPECT_EQ(pool->free_pages(), 20);
}

TEST_F(PrefixCacheTest, WhatIsUsedStaysAndTheOldestGoesFirst) {
  auto pool = StatePool::make(*run.exec.device, kPaged, 6, 8);
  ASSERT_TRUE(pool.ok());
  PrefixCache cache(*pool, false);
  Walker a(cache, *pool), b(cache, *pool), c(cache, *pool);
  a.start({}, tokens(33, 1));
  a.stop();
  b.start({}, tokens(33, 2));
  b.stop();
  EXPECT_EQ(cache.idle_pages(), 4);
  EXPECT_EQ(c.start({}, tokens(33, 1)), 32);  // uses the older
  cache.make_room(3);
  EXPECT_EQ(pool->free_pages(), 3) << "b's pages went, a's are in use";
  cache.make_room(6);
  EXPECT_EQ(pool->free_pages(), 3);
  c.stop();
  Walker again(cache, *pool);
  EXPECT_EQ(again.start({}, tokens(33, 2)), 0);
  again.stop();
}

// Two that computed the same at the same time end up with one copy: otherwise what one has cached would be kept by the
// other, which needs its memory.
TEST_F(PrefixCacheTest, TheSamePageIsKeptOnce) {
  auto pool = StatePool::make(*run.exec.device, kPaged, 6, 4);
  ASSERT_TRUE(pool.ok());
  PrefixCache cache(*pool, false);
  SequenceState a, b;
  ASSERT_TRUE(pool->reserve(a, 16) && pool->reserve(b, 16));
  PrefixCache::Match ma = cache.find({}, tokens(16), 15), mb = cache.find({}, tokens(16), 15);
  EXPECT_EQ(pool->free_pages(), 4);
  PrefixCache::Node* at_a = cache.extend(ma.at, tokens(16), &a.pages[0]);
  PrefixCache::Node* at_b = cache.extend(mb.at, tokens(16), &b.pages[0]);
  EXPECT_EQ(at_a, at_b);
  EXPECT_EQ(a.pages, b.pages);
  EXPECT_EQ(pool->free_pages(), 5);
  cache.leave(at_a);
  cache.leave(at_b);
  pool->release(a);
  pool->release(b);
  EXPECT_EQ(cache.idle_pages(), 1);
}

TEST_F(PrefixCacheTest, RecurrentLayersStartFromSnapshotsOnly) {
  auto pool = StatePool::make(*run.exec.device, kMixed, 20, 4, 1);
  ASSERT_TRUE(pool.ok());
  PrefixCache cache(*pool, true);
  Walker a(cache, *pool);
  a.start({}, tokens(32));
  const View ssm = pool->layers()[1].ssm;
  const std::int32_t slot = a.state.slot;
  run.exec.launch([=] { ptr<float>(ssm.at(slot))[3] = 8; });
  PrefixCache::Match match = cache.find({}, tokens(40), 39);
  EXPECT_EQ(match.tokens, 0);
  EXPECT_EQ(match.common, 32);
  cache.leave(match.at);
  cache.keep_snapshot(run.exec, a.at, slot);
  match = cache.find({}, tokens(40), 39);
  EXPECT_EQ(match.tokens, 32);
  ASSERT_GE(match.snapshot, 4) << "beyond the slots of sequences";
  EXPECT_EQ(ptr<float>(ssm.at(match.snapshot))[3], 8);
  for (const std::int32_t page : match.pages) pool->drop(page);
  cache.leave(match.at);

  Walker b(cache, *pool);  // the only snapshot slot goes to the newer
  b.start({}, tokens(32, 5));
  cache.keep_snapshot(run.exec, b.at, b.state.slot);
  match = cache.find({}, tokens(40), 39);
  EXPECT_EQ(match.tokens, 0);
  cache.leave(match.at);
  a.stop();
  b.stop();
  cache.make_room(20);
  EXPECT_EQ(pool->free_pages(), 20);
  EXPECT_EQ(pool->take_snapshot_slot(), 4);
}

// Whatever comes and goes, in any order, nothing is lost or given out twice.
TEST_F(PrefixCacheTest, RandomUseLosesNothing) {
  auto pool = StatePool::make(*run.exec.device, kMixed, 24, 8, 3);
  ASSERT_TRUE(pool.ok());
  {
    PrefixCache cache(*pool, true);
    std::mt19937 random(7);
    std::vector<std::unique_ptr<Walker>> running;
    for (int step = 0; step < 3000; ++step) {
      if (running.size() < 4 && random() % 2 == 0) {
        auto walker = std::make_unique<Walker>(cache, *pool);
        const PrefixCache::Key key{random() % 3, random() % 2 == 0 ? "" : "t"};
        auto ids = tokens(1 + random() % 80, static_cast<int>(random() % 2));
        if (random() % 2 == 0) ids[random() % ids.size()] = -5;
        walker->start(key, ids);
        if (random() % 2 == 0) cache.keep_snapshot(run.exec, walker->at, walker->state.slot);
        std::map<std::int32_t, int> seen;
        for (const std::int32_t page : walker->state.pages) EXPECT_EQ(++seen[page], 1);
        running.push_back(std::move(walker));
      } else if (!running.empty()) {
        const std::size_t i = random() % running.size();
        running[i]->stop();
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (random() % 50 == 0) cache.forget(random() % 3);
    }
    for (auto& walker : running) walker->stop();
    EXPECT_EQ(pool->free_pages() + cache.idle_pages(), 24);
    EXPECT_EQ(pool->free_slots(), 8);
  }
  EXPECT_EQ(pool->free_pages(), 24);
}

}  // namespace
}  // namespace cadre
