#include "moe/moe_random.h"

#include <sstream>

#include "moe/record.h"

namespace cadre::test {

RandomCase random_case(unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const auto chance = [&](int one_in) { return draw(1, one_in) == 1; };
  const auto size = [&] { return chance(2) ? 32 * draw(1, 4) : draw(1, 130); };
  RandomCase c;
  LayerSpec& s = c.spec;
  s.experts = chance(4) ? draw(1, 64) : draw(1, 9);
  s.top_k = draw(1, std::min(s.experts, chance(6) ? 64 : 8));
  s.hidden = size();
  if (chance(5)) s.latent = size();
  s.intermediate = size();
  s.activation.gated = !chance(3);
  s.activation.kind = static_cast<Activation>(draw(0, s.activation.gated ? 4 : 3));
  if (s.activation.gated && chance(3)) s.activation.limit = 0.25f * static_cast<float>(draw(1, 12));
  if (s.activation.kind == Activation::kSwigluOai) {
    s.activation.alpha = 1.702f;
    s.activation.beta = 1.0f;
  }
  s.weights.type = chance(3) ? static_cast<WeightType>(draw(1, 2)) : WeightType::kBF16;
  s.expert_bias = chance(4);
  s.router_weight_on_input = chance(5);
  c.storage = s.activation.gated && chance(5) ? Storage::kInterleaved
              : chance(4)                     ? Storage::kTransposed
                                              : Storage::kPlain;
  s.interleaved_gate_up = c.storage == Storage::kInterleaved;
  c.deployment = here();
  c.deployment.max_tokens = 64;
  if (chance(4)) c.deployment.tensor_parallel = draw(2, 4);
  if (chance(4)) {
    c.deployment.expert_parallel = draw(2, 3);
    c.deployment.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
  }
  c.tensor_rank = draw(0, c.deployment.tensor_parallel - 1);
  c.expert_rank = draw(0, c.deployment.expert_parallel - 1);
  if (!chance(3)) {
    AdapterDemand& demand = c.deployment.adapters;
    demand.max_adapters = draw(1, 4);
    demand.projections = chance(3) ? static_cast<std::uint8_t>(draw(1, 7)) : std::uint8_t{kGate | kUp | kDown};
    // Gate alone where there is none asks for nothing.
    if (!s.activation.gated && demand.projections == kGate) demand.projections = kUp;
    const AdapterLayout layouts[] = {kPerExpert, kSharedGateUpA, kSharedOuter};
    const int used = draw(1, demand.max_adapters);
    for (int i = 0; i < used; ++i) {
      AdapterShape shape;
      shape.layout = layouts[draw(0, 4) % 3];
      shape.max_rank = chance(3) ? draw(1, 64) : draw(1, 8);
      shape.min_rank = chance(3) ? 0 : chance(2) ? shape.max_rank : 1;
      shape.projections = demand.projections;
      demand.layouts |= shape.layout;
      demand.max_rank = std::max(demand.max_rank, shape.max_rank);
      c.adapters.push_back(shape);
    }
  }
  c.tokens = chance(12) ? 0 : chance(6) ? draw(20, 60) : draw(1, 12);
  c.ids = chance(4) ? Ids::kWithHoles : chance(4) ? Ids::kOneExpert : Ids::kDistinct;
  return c;
}

std::string RandomCase::describe() const {
  std::ostringstream out;
  out << spec.experts << " experts, top " << spec.top_k << ", width " << spec.expert_width() << ", intermediate "
      << spec.intermediate << ", " << to_string(spec.activation.kind) << (spec.activation.gated ? " gated" : "")
      << ", limit " << spec.activation.limit << ", " << to_string(spec.weights.type)
      << (spec.expert_bias ? ", bias" : "") << (spec.router_weight_on_input ? ", weight on input" : "") << ", tp "
      << tensor_rank << "/" << deployment.tensor_parallel << ", ep " << expert_rank << "/" << deployment.expert_parallel
      << ", " << adapters.size() << " adapters of rank up to " << deployment.adapters.max_rank << ", " << tokens
      << " tokens";
  return std::move(out).str();
}

CaseData::CaseData(const RandomCase& c, unsigned seed) : weights(c.spec, seed, c.storage) {
  for (std::size_t i = 0; i < c.adapters.size(); ++i) {
    storage.emplace_back(c.spec, c.adapters[i], seed + 7 * static_cast<unsigned>(i));
    adapters[static_cast<int>(i)] = &storage.back();
  }
  batch = random_batch(c.spec, c.tokens, c.deployment.adapters.max_adapters, c.ids, seed + 100);
}

}  // namespace cadre::test
