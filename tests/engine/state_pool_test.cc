#include "engine/state_pool.h"

#include <gtest/gtest.h>

#include "support/exec_fixture.h"

namespace cadre {
namespace {

const std::vector<StateSpec> kSpecs = {
    {.kind = StateSpec::Kind::kPagedKv, .kv_heads = 1, .head_dim = 2},
    {.kind = StateSpec::Kind::kRecurrent, .channels = 3, .width = 4, .heads = 2, .ssm_head_dim = 2, .state = 2}};

TEST(StatePool, ReserveGivesAllOrNothing) {
  const auto device = make_cpu_device();
  auto pool = StatePool::make(*device, kSpecs, 4, 2);
  ASSERT_TRUE(pool.ok());
  SequenceState a, b, c;
  EXPECT_TRUE(pool->reserve(a, 17));
  EXPECT_EQ(a.pages.size(), 2u);
  EXPECT_FALSE(pool->reserve(b, 16 * 3));
  EXPECT_EQ(b.slot, -1);
  EXPECT_TRUE(b.pages.empty());
  EXPECT_TRUE(pool->reserve(b, 16));
  EXPECT_FALSE(pool->reserve(c, 1)) << "no slot is left";
  EXPECT_TRUE(pool->reserve(a, 33));
  EXPECT_FALSE(pool->reserve(a, 49));
  EXPECT_EQ(a.pages.size(), 3u);
  pool->release(a);
  pool->release(b);
  EXPECT_EQ(pool->free_pages(), 4);
  EXPECT_EQ(pool->free_slots(), 2);
}

TEST(StatePool, CopyTakesPagesAndSlots) {
  for (const char* device : {"cpu", "test"}) {
    test::TestExec run(test::Machine{device, 1}, 1 << 20);
    auto pool = StatePool::make(*run.exec.device, kSpecs, 4, 2);
    ASSERT_TRUE(pool.ok());
    SequenceState a, b;
    ASSERT_TRUE(pool->reserve(a, 20));
    a.length = 20;
    const View kv = pool->layers()[0].kv, conv = pool->layers()[1].conv, ssm = pool->layers()[1].ssm;
    const std::int32_t page = a.pages[1], slot = a.slot;
    run.exec.launch([=] {
      ptr<float>(kv.at(page))[3] = 5;
      ptr<float>(conv.at(slot))[1] = 6;
      ptr<float>(ssm.at(slot))[2] = 7;
    });
    ASSERT_TRUE(pool->copy(run.exec, a, b));
    EXPECT_EQ(b.length, 20);
    const auto read = [&](const View& v, std::int64_t at) {
      float x = 0;
      run.exec.device->to_host(*run.exec.stream, &x, ptr<float>(v) + at, sizeof x);
      return x;
    };
    EXPECT_EQ(read(kv.at(b.pages[1]), 3), 5);
    EXPECT_EQ(read(conv.at(b.slot), 1), 6);
    EXPECT_EQ(read(ssm.at(b.slot), 2), 7);
    SequenceState c;
    EXPECT_FALSE(pool->copy(run.exec, a, c));
  }
}

// A latent cache takes one vector for each token, and its pages are copied like others.
TEST(StatePool, LatentPages) {
  const std::vector<StateSpec> specs = {{.kind = StateSpec::Kind::kLatentKv, .latent = 40},
                                        {.kind = StateSpec::Kind::kPagedKv, .kv_heads = 2, .head_dim = 8}};
  EXPECT_EQ(StatePool::page_bytes(specs), kPageSize * (40 + 2 * 2 * 8) * 4);
  EXPECT_EQ(StatePool::slot_bytes(specs), 0);
  test::TestExec run(test::Machine{"test", 1}, 1 << 20);
  auto pool = StatePool::make(*run.exec.device, specs, 4, 2);
  ASSERT_TRUE(pool.ok());
  const View latent = pool->layers()[0].kv;
  ASSERT_EQ(latent.describe(), "float32 [4, 16, 40]");
  SequenceState a, b;
  ASSERT_TRUE(pool->reserve(a, 20));
  a.length = 20;
  const std::int32_t page = a.pages[1];
  run.exec.launch([=] { ptr<float>(latent.at(page))[3 * 40 + 39] = 5; });
  ASSERT_TRUE(pool->copy(run.exec, a, b));
  float x = 0;
  run.exec.device->to_host(*run.exec.stream, &x, ptr<float>(latent.at(b.pages[1])) + 3 * 40 + 39, sizeof x);
  EXPECT_EQ(x, 5);
}

}  // namespace
}  // namespace cadre
