#include "server/load/schedule.h"

#include <cmath>

namespace cadre::server {

double LoadRandom::uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

std::uint64_t LoadRandom::below(std::uint64_t count) {
  // Without the remainder's bias: what is left of the last whole multiple is drawn again.
  const std::uint64_t limit = ~std::uint64_t{0} - ~std::uint64_t{0} % count;
  std::uint64_t value = engine_();
  while (value >= limit) value = engine_();
  return value % count;
}

int LoadRandom::in(const IntRange& range) {
  return range.min + static_cast<int>(below(static_cast<std::uint64_t>(range.max - range.min) + 1));
}

double Arrivals::next() { return at_ += -std::log1p(-random_.uniform()) / rate_; }

std::size_t pick_target(const std::vector<LoadTarget>& targets, LoadRandom& random) {
  double all = 0;
  for (const LoadTarget& target : targets) all += target.share;
  double at = random.uniform() * all;
  for (std::size_t i = 0; i + 1 < targets.size(); ++i) {
    if (at < targets[i].share) return i;
    at -= targets[i].share;
  }
  return targets.size() - 1;
}

}  // namespace cadre::server
