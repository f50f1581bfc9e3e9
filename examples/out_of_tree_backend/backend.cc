#include "out_of_tree_backend/backend.h"

#include <algorithm>

#include "out_of_tree_backend/experts.h"
#include "out_of_tree_backend/record.h"

namespace scalar {
namespace {

using cadre::Deployment;
using cadre::LayerSpec;

class ScalarSilu final : public cadre::MoeBackend {
 public:
  const char* name() const override { return "scalar_silu"; }
  const char* description() const override { return "SiLU-gated BF16 experts, scalar float32"; }

  std::vector<cadre::Refusal> check(const LayerSpec& spec, const Deployment& deployment) const override {
    return cadre::check_record(kRecord, spec, deployment);
  }

  // A sum of products that waits for each addition: 1.5 GFLOP/s on a core. A row is one thread's work, so that fewer
  // rows than cores leave cores idle.
  double estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const override {
    constexpr double kCoreFlops = 1.5e9, kCallSeconds = 10e-6;
    const double row = 3 * 2.0 * static_cast<double>(spec.expert_width() * spec.intermediate) * spec.top_k;
    const int cores = std::max(1, std::min(deployment.device.cores, tokens));
    return kCallSeconds + tokens * row / (kCoreFlops * cores);
  }

 private:
  cadre::Result<std::unique_ptr<cadre::Experts>> prepare(const cadre::MoeAdmission& admission,
                                                         const cadre::ExpertInputs& inputs) const override {
    return make_experts(admission, inputs, silu_gate);
  }
};

}  // namespace

const cadre::MoeBackend& backend() {
  static const ScalarSilu instance;
  return instance;
}

}  // namespace scalar
