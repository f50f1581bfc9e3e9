// Random layers: every dimension of a spec that changes arithmetic, on small sizes.
#pragma once

#include "moe/moe_runner.h"

namespace cadre::test {

struct RandomCase {
  LayerSpec spec;
  Deployment deployment;
  int tensor_rank = 0, expert_rank = 0;
  std::vector<AdapterShape> adapters;  // one for each slot used; slots may be left empty behind them
  std::int64_t tokens = 0;
  Ids ids = Ids::kDistinct;
  Storage storage = Storage::kPlain;
  std::string describe() const;
};

// Anything the reference admits.
RandomCase random_case(unsigned seed);

// A case and its data.
struct CaseData {
  explicit CaseData(const RandomCase& c, unsigned seed);
  RandomWeights weights;
  std::deque<RandomAdapter> storage;
  Adapters adapters;
  MoeBatch batch;
};

}  // namespace cadre::test
