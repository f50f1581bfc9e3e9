#include "moe/experts/cpu_vector/backend.h"

#include <sstream>

#include "moe/cpu_cost.h"
#include "moe/experts/cpu_vector/experts.h"
#include "moe/experts/cpu_vector/pack.h"
#include "moe/experts/cpu_vector/record.h"

namespace cadre {
namespace {

class CpuVector final : public MoeBackend {
 public:
  const char* name() const override { return "cpu_vector"; }
  const char* description() const override { return "BF16 weights packed in blocks, float32 arithmetic, vector code"; }

  std::vector<Refusal> check(const LayerSpec& spec, const Deployment& deployment) const override {
    return check_record(kCpuVectorRecord, spec, deployment);
  }

  // GFLOP/s of one core of a two-core guest of a Sapphire Rapids server: with AVX-512 of whole layers, with AVX2 and
  // with neither of the kernels alone.
  double estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const override {
    const DeviceCaps& device = deployment.device;
    return cpu_moe_seconds(
        spec, deployment, tokens,
        device.avx512 ? 135
        : device.avx2 ? 65
                      : 22,
        cpu_vector::round_up(intermediate_per_rank(spec, deployment), kCpuVectorRecord.intermediate_multiple));
  }

  std::int64_t prepared_bytes(const LayerSpec& spec, const Deployment& deployment) const override {
    const std::int64_t matrices = spec.activation.gated ? 3 : 2;
    return 2 * matrices * experts_per_rank(spec, deployment) * spec.expert_width() *
           cpu_vector::round_up(intermediate_per_rank(spec, deployment), kCpuVectorRecord.intermediate_multiple);
  }

  std::vector<std::string> remedies(const LayerSpec& spec, const Deployment& deployment) const override {
    const std::int64_t real = intermediate_per_rank(spec, deployment);
    const std::int64_t padded = cpu_vector::round_up(real, kCpuVectorRecord.intermediate_multiple);
    if (padded == real || real <= 0) return {};
    std::ostringstream text;
    text.precision(1);
    text << std::fixed << "pads the intermediate size on each rank from " << real << " to " << padded
         << " with zeros: " << 100.0 * static_cast<double>(padded - real) / static_cast<double>(real)
         << " % more memory and work";
    return {std::move(text).str()};
  }

 private:
  Result<std::unique_ptr<Experts>> prepare(const MoeAdmission& admission, const ExpertInputs& inputs) const override {
    return prepare_cpu_vector(admission, inputs);
  }
};

}  // namespace

const MoeBackend& cpu_vector_backend() {
  static const CpuVector backend;
  return backend;
}

}  // namespace cadre
