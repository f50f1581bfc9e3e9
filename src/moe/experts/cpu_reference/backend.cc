#include "moe/experts/cpu_reference/backend.h"

#include "moe/experts/cpu_reference/experts.h"
#include "moe/experts/cpu_reference/record.h"

namespace cadre {
namespace {

class CpuReference final : public MoeBackend {
 public:
  const char* name() const override { return "cpu_reference"; }
  const char* description() const override { return "float32 in a fixed order, any CPU, any shape"; }

  std::vector<Refusal> check(const LayerSpec& spec, const Deployment& deployment) const override {
    return check_record(kCpuReferenceRecord, spec, deployment);
  }

  // One dot product after another: weights are read once for a block of rows, products run at a fraction of the
  // machine's rate. 4 GFLOP/s a core is what the scalar path of a 2.x GHz server core reaches.
  double estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const override {
    const double matrices = spec.activation.gated ? 3 : 2;
    const double per_pair =
        matrices * 2.0 * static_cast<double>(spec.expert_width() * intermediate_per_rank(spec, deployment));
    const double pairs = static_cast<double>(tokens) * spec.top_k / deployment.expert_parallel;
    return 20e-6 + pairs * per_pair / (4e9 * deployment.device.cores);
  }

 private:
  Result<std::unique_ptr<Experts>> prepare(const MoeAdmission& admission, const ExpertInputs& inputs) const override {
    return prepare_cpu_reference(admission, inputs);
  }
};

}  // namespace

const MoeBackend& cpu_reference_backend() {
  static const CpuReference backend;
  return backend;
}

}  // namespace cadre
