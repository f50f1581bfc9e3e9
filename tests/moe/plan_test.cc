// The plan: every pair of this rank once, by expert, then adapter slot, then pair.
#include <gtest/gtest.h>

#include <algorithm>

#include "moe/plan.h"
#include "support/exec_fixture.h"

namespace cadre::test {
namespace {

struct Plan {
  Ints pair, offset, place;
};

Plan plan(const Ints& ids, std::int64_t tokens, std::int64_t k, const Ints& slots, std::int64_t first,
          std::int64_t last, const Machine& machine = {}) {
  TestExec t(machine);
  const View id = t.put({tokens, k}, ids);
  const MoePlan p = make_plan(t.exec, id, slots.empty() ? View{} : t.put(slots), first, last);
  Plan out{t.get_ints(p.pair), t.get_ints(p.offset), t.get_ints(p.place)};
  out.pair.resize(static_cast<std::size_t>(out.offset.back()));
  out.place.resize(static_cast<std::size_t>(tokens * k));
  return out;
}

TEST(MoePlan, CountsAndOrdersByExpert) {
  const Plan p = plan({2, 0, 0, 1, 2, 0}, 3, 2, {}, 0, 4);
  EXPECT_EQ(p.offset, (Ints{0, 3, 4, 6, 6}));
  EXPECT_EQ(p.pair, (Ints{1, 2, 5, 3, 0, 4}));
  EXPECT_EQ(p.place, (Ints{4, 0, 1, 3, 5, 2}));
}

TEST(MoePlan, OrdersByAdapterWithinAnExpert) {
  // Tokens 0..3 with slots 1, -1, 0, 1, all on expert 0 and half on expert 1.
  const Plan p = plan({0, 1, 0, 1, 0, 1, 0, 1}, 4, 2, {1, -1, 0, 1}, 0, 2);
  EXPECT_EQ(p.offset, (Ints{0, 4, 8}));
  EXPECT_EQ(p.pair, (Ints{2, 4, 0, 6, 3, 5, 1, 7}));
}

TEST(MoePlan, IdsOfNobodyFallOut) {
  const std::int32_t far = std::numeric_limits<std::int32_t>::max(), low = std::numeric_limits<std::int32_t>::min();
  const Plan p = plan({-1, 5, 4, far, 3, low}, 3, 2, {0, 0, 0}, 3, 5);
  EXPECT_EQ(p.offset, (Ints{0, 1, 2}));
  EXPECT_EQ(p.pair, (Ints{4, 2}));
  EXPECT_EQ(p.place, (Ints{-1, -1, 1, -1, 0, -1}));
}

TEST(MoePlan, NoTokensAndNoExperts) {
  EXPECT_EQ(plan({}, 0, 2, {}, 0, 3).offset, (Ints{0, 0, 0, 0}));
  const Plan none = plan({0, 1}, 1, 2, {}, 2, 2);
  EXPECT_EQ(none.offset, (Ints{0}));
  EXPECT_EQ(none.place, (Ints{-1, -1}));
}

TEST(MoePlan, EveryPairOnceOnEveryMachine) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t tokens = 1 + random() % 40, k = 1 + random() % 8, experts = 1 + random() % 64;
    const std::int64_t first = static_cast<std::int64_t>(random()) % experts;
    const std::int64_t last = first + static_cast<std::int64_t>(random()) % (experts - first + 1);
    Ints ids, slots;
    for (std::int64_t i = 0; i < tokens * k; ++i)
      ids.push_back(static_cast<std::int32_t>(random() % (experts + 3)) - 1);
    for (std::int64_t i = 0; i < tokens; ++i) slots.push_back(static_cast<std::int32_t>(random() % 4) - 1);
    const bool with_slots = round % 3 != 0;
    const Plan p = plan(ids, tokens, k, with_slots ? slots : Ints{}, first, last,
                        round % 10 == 0 ? Machine{"test", 2} : Machine{});
    // From the definition: sort the pairs by (expert, slot, pair).
    std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>> want;
    for (std::int32_t i = 0; i < tokens * k; ++i) {
      const std::int32_t id = ids[static_cast<std::size_t>(i)];
      if (id < first || id >= last) continue;
      want.emplace_back(id, with_slots ? slots[static_cast<std::size_t>(i / k)] : 0, i);
    }
    std::sort(want.begin(), want.end());
    ASSERT_EQ(p.pair.size(), want.size());
    ASSERT_EQ(p.offset.size(), static_cast<std::size_t>(last - first + 1));
    Ints place(static_cast<std::size_t>(tokens * k), -1);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(p.pair[i], std::get<2>(want[i]));
      place[static_cast<std::size_t>(p.pair[i])] = static_cast<std::int32_t>(i);
      const std::size_t e = static_cast<std::size_t>(std::get<0>(want[i]) - first);
      ASSERT_GE(static_cast<std::int32_t>(i), p.offset[e]);
      ASSERT_LT(static_cast<std::int32_t>(i), p.offset[e + 1]);
    }
    ASSERT_EQ(p.place, place);
  }
}

}  // namespace
}  // namespace cadre::test
