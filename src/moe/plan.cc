#include "moe/plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace cadre {

MoePlan make_plan(const Exec& exec, View ids, View slots, std::int64_t first, std::int64_t last) {
  const std::int64_t pairs = ids.elements();
  const std::int64_t local = last - first;
  MoePlan plan;
  plan.pair = exec.arena->alloc(DType::kI32, {std::max<std::int64_t>(pairs, 1)});
  plan.offset = exec.arena->alloc(DType::kI32, {local + 1});
  plan.place = exec.arena->alloc(DType::kI32, {std::max<std::int64_t>(pairs, 1)});
  exec.launch([plan, ids, slots, first, local, pairs] {
    const std::int32_t* id = ptr<std::int32_t>(ids);
    std::int32_t* offset = ptr<std::int32_t>(plan.offset);
    std::int32_t* pair = ptr<std::int32_t>(plan.pair);
    std::int32_t* place = ptr<std::int32_t>(plan.place);
    const std::int64_t k = ids.dim(1);
    std::fill_n(offset, local + 1, 0);
    const auto mine = [&](std::int64_t p) { return id[p] >= first && id[p] < first + local; };
    for (std::int64_t p = 0; p < pairs; ++p) {
      if (mine(p)) ++offset[id[p] - first + 1];
    }
    std::partial_sum(offset, offset + local + 1, offset);
    std::vector<std::int32_t> next(offset, offset + local);
    for (std::int64_t p = 0; p < pairs; ++p) {
      if (mine(p)) pair[next[static_cast<std::size_t>(id[p] - first)]++] = static_cast<std::int32_t>(p);
    }
    if (slots.defined()) {
      const std::int32_t* slot = ptr<std::int32_t>(slots);
      for (std::int64_t e = 0; e < local; ++e) {
        std::sort(pair + offset[e], pair + offset[e + 1], [&](std::int32_t a, std::int32_t b) {
          return slot[a / k] != slot[b / k] ? slot[a / k] < slot[b / k] : a < b;
        });
      }
    }
    std::fill_n(place, pairs, -1);
    for (std::int32_t i = 0; i < offset[local]; ++i) place[pair[i]] = i;
  });
  return plan;
}

}  // namespace cadre
