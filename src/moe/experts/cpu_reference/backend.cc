#include "moe/experts/cpu_reference/backend.h"

#include "moe/cpu_cost.h"
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

  // Dot products in a fixed order: with AVX-512 one core of a two-core guest of a Sapphire Rapids server was measured
  // at 19 GFLOP/s in whole layers of 512 rows; half and a fifth of that are assumed for AVX2 and for neither.
  double estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const override {
    const DeviceCaps& device = deployment.device;
    return cpu_moe_seconds(spec, deployment, tokens,
                           device.avx512 ? 19
                           : device.avx2 ? 10
                                         : 4,
                           intermediate_per_rank(spec, deployment));
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
