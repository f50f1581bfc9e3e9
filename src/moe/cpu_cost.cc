#include "moe/cpu_cost.h"

#include <algorithm>
#include <cmath>

namespace cadre {

double cpu_moe_seconds(const LayerSpec& spec, const Deployment& deployment, int tokens, double core_gflop_s,
                       std::int64_t intermediate) {
  const DeviceCaps& device = deployment.device;
  const double cores = std::max(device.cores, 1), ranks = std::max(deployment.expert_parallel, 1);
  const double gb_s = device.memory_gb_s > 0 ? device.memory_gb_s : std::min(13.0 * cores, 250.0);
  const double matrices = spec.activation.gated ? 3 : 2;
  const double width = static_cast<double>(spec.expert_width()), inner = static_cast<double>(intermediate);
  const double experts = std::max(spec.experts, 1);
  const double pairs = static_cast<double>(tokens) * spec.top_k / ranks;
  // Experts that uniform routing reaches.
  const double reached = experts / ranks * (1 - std::pow(1 - std::min(spec.top_k / experts, 1.0), tokens));
  const double matrix = matrices * width * inner;
  const double adapters = deployment.adapters.any() ? matrices * deployment.adapters.max_rank * (width + inner) : 0.0;
  const double read = (2 * reached * (matrix + adapters) + 16 * pairs * width) / (gb_s * 1e9);
  const double multiply = 2 * pairs * (matrix + adapters) / (core_gflop_s * cores * 1e9);
  return 20e-6 + read + multiply;
}

}  // namespace cadre
