#include "engine/fair_share.h"

#include <algorithm>
#include <limits>

namespace cadre {

double FairShare::least() const {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const auto& [key, flow] : flows_) {
    if (flow->active()) least = std::min(least, flow->served);
    most = std::max(most, flow->served);
  }
  return least == std::numeric_limits<double>::infinity() ? most : least;
}

Flow* FairShare::join(const std::string& tenant, const std::string& adapter) {
  const double floor = least();
  std::unique_ptr<Flow>& flow = flows_[{tenant, adapter}];
  if (flow == nullptr) flow = std::make_unique<Flow>();
  if (!flow->active()) flow->served = std::max(flow->served, floor);
  ++flow->waiting;
  return flow.get();
}

void FairShare::tidy() {
  // What an idle flow remembers counts only while it is above what it would start at; so this stays as small as the
  // number of flows that were active lately.
  const double floor = least();
  std::erase_if(flows_, [&](const auto& entry) { return !entry.second->active() && entry.second->served <= floor; });
}

int FairShare::active() const {
  return static_cast<int>(
      std::count_if(flows_.begin(), flows_.end(), [](const auto& entry) { return entry.second->active(); }));
}

}  // namespace cadre
