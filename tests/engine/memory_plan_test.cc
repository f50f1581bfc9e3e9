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

TEST(MemoryPlan, TheMachineHasMemory) { EXPECT_GT(available_memory(), std::int64_t{1} << 20); }

}  // namespace
}  // namespace cadre
