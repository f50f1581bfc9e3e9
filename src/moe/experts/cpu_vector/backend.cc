#include "moe/experts/cpu_vector/backend.h"

#include <algorithm>
#include <cmath>
#include <sstream>

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

  // Reading the weights of the experts that rows reach, plus multiplying: with a few rows for each expert the two
  // hardly overlap, and elsewhere one of them is small.
  double estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const override {
    const DeviceCaps& device = deployment.device;
    // One core of a two-core guest of a Sapphire Rapids server, in GFLOP/s with AVX-512 (whole layers),
    // AVX2 and neither (kernels alone), and 13 GB/s.
    const double core_gflop_s = device.avx512 ? 135 : device.avx2 ? 65 : 22;
    const double gflop_s = core_gflop_s * std::max(device.cores, 1);
    const double gb_s = device.memory_gb_s > 0 ? device.memory_gb_s : std::min(13.0 * std::max(device.cores, 1), 250.0);
    const double matrices = spec.activation.gated ? 3 : 2;
    const double padded = static_cast<double>(
        cpu_vector::round_up(intermediate_per_rank(spec, deployment), kCpuVectorRecord.intermediate_multiple));
    const double width = static_cast<double>(spec.expert_width()), experts = std::max(spec.experts, 1);
    const double pairs = static_cast<double>(tokens) * spec.top_k / std::max(deployment.expert_parallel, 1);
    // Experts that uniform routing reaches.
    const double reached = experts / std::max(deployment.expert_parallel, 1) *
                           (1 - std::pow(1 - std::min(spec.top_k / experts, 1.0), tokens));
    const double matrix = matrices * width * padded;
    const double adapters =
        deployment.adapters.any() ? matrices * deployment.adapters.max_rank * (width + padded) : 0.0;
    const double read = (2 * reached * (matrix + adapters) + 16 * pairs * width) / (gb_s * 1e9);
    const double multiply = 2 * pairs * (matrix + adapters) / (gflop_s * 1e9);
    return 20e-6 + read + multiply;
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
