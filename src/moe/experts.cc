#include "moe/experts.h"

#include "moe/experts/cpu_reference/backend.h"
#include "moe/experts/cpu_vector/backend.h"

namespace cadre {

std::vector<std::pair<int, double>> MoeOp::token_mix(const Deployment& deployment) {
  if (deployment.token_mix.empty()) return {{8, 0.5}, {deployment.max_tokens, 0.5}};
  std::vector<std::pair<int, double>> mix;
  mix.reserve(deployment.token_mix.size());
  for (const TokenShare& share : deployment.token_mix) mix.emplace_back(share.tokens, share.weight);
  return mix;
}

const std::vector<const MoeBackend*>& built_in_backends() {
  static const std::vector<const MoeBackend*> kList = {&cpu_vector_backend(), &cpu_reference_backend()};
  return kList;
}

MoeGate make_moe_gate(const std::vector<const MoeBackend*>& extra) {
  std::vector<const MoeBackend*> all = extra;
  all.insert(all.end(), built_in_backends().begin(), built_in_backends().end());
  return MoeGate(std::move(all));
}

Status check_attach(const MoeAdmission& admission, int slot, const LayerLora& lora) {
  const AdapterDemand& plan = admission.deployment().adapters;
  if (lora.empty()) return {};
  if (slot < 0 || slot >= plan.max_adapters) {
    return error(Code::kLimitExceeded, "adapter slot ", slot, " is beyond the ", plan.max_adapters,
                 " adapters this layer was planned for (--max-loras)");
  }
  if (lora.max_rank() > plan.max_rank) {
    return error(Code::kLimitExceeded, "adapter rank ", lora.max_rank(), " is above the ", plan.max_rank,
                 " this layer was planned for (--max-lora-rank)");
  }
  const int touched = (lora.gate.empty() ? 0 : kGate) | (lora.up.empty() ? 0 : kUp) | (lora.down.empty() ? 0 : kDown);
  if ((touched & ~plan.projections) != 0) {
    return error(Code::kLimitExceeded, "the adapter touches expert projections this layer was not planned for");
  }
  return {};
}

std::vector<LowRank> terms_of_shard(const LayerLora& lora, const LayerSpec& spec, const ExpertShard& shard) {
  const auto [first, last] = shard.experts(spec.experts);
  const auto [begin, end] = shard.intermediate(spec.intermediate);
  std::vector<LowRank> terms;
  terms.reserve(static_cast<std::size_t>(3 * (last - first)));
  for (const std::vector<LowRank>* part : {&lora.gate, &lora.up, &lora.down}) {
    for (std::int64_t e = first; e < last; ++e) {
      LowRank term = part->empty() ? LowRank{} : (*part)[static_cast<std::size_t>(e)];
      if (term.rank() > 0 && part == &lora.down) term.a = term.a.slice(1, begin, end);
      if (term.rank() > 0 && part != &lora.down) term.b = term.b.slice(0, begin, end);
      terms.push_back(term);
    }
  }
  return terms;
}

}  // namespace cadre
