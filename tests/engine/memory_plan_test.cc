#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "engine/state_pool.h"
#include "support/status_matchers.h"

namespace cadre {
namespace {

const std::vector<StateSpec> kAttention = {{.kind = StateSpec::Kind::kPagedKv, .kv_heads = 2, .head_dim = 16}};

TEST(MemoryPlan, PagesForEverySequenceAsFarAsTheBudgetGoes) {
  EngineOptions options;
  options.max_num_seqs = 4;
  auto plan = plan_cache(options, kAttention, 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->pages, 4 * 7);
  EXPECT_EQ(plan->cache, plan->pages * StatePool::page_bytes(kAttention));
  EXPECT_TRUE(plan->note.empty());
  options.kv_cache_memory = 10 * StatePool::page_bytes(kAttention) + 1;
  plan = plan_cache(options, kAttention, 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->pages, 10);
  EXPECT_EQ(plan->max_model_len, 100);
}

// Recurrent layers start from snapshots alone: without room for any, looking for what is cached would be in vain.
TEST(MemoryPlan, NoPrefixCacheWithoutSnapshots) {
  const std::vector<StateSpec> hybrid = {
      kAttention.front(),
      {.kind = StateSpec::Kind::kRecurrent, .channels = 8, .width = 4, .heads = 2, .ssm_head_dim = 8, .state = 16}};
  EngineOptions options;
  options.max_num_seqs = 4;
  auto plan = plan_cache(options, hybrid, 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_GT(plan->snapshots, 0);
  EXPECT_TRUE(plan->prefix_caching);
  options.kv_cache_memory = 4 * StatePool::slot_bytes(hybrid) + 7 * StatePool::page_bytes(hybrid);
  plan = plan_cache(options, hybrid, 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->snapshots, 0);
  EXPECT_EQ(plan->max_model_len, 100);
  EXPECT_FALSE(plan->prefix_caching);
  plan = plan_cache(options, kAttention, 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->prefix_caching) << "attention needs no snapshots";
  options.enable_prefix_caching = false;
  plan = plan_cache(options, kAttention, 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->prefix_caching);
}

TEST(MemoryPlan, TheMachineHasMemory) { EXPECT_GT(available_memory(), std::int64_t{1} << 20); }

}  // namespace
}  // namespace cadre
