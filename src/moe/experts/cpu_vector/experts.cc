#include "moe/experts/cpu_vector/experts.h"

#include <algorithm>

#include "moe/experts/cpu_vector/backend.h"
#include "moe/experts/cpu_vector/layer.h"
#include "moe/experts/cpu_vector/record.h"

namespace cadre {
namespace {

using namespace cpu_vector;

Layer make_layer(const LayerSpec& spec, const Deployment& deployment, const ExpertShard& shard) {
  Layer layer;
  layer.spec = spec;
  layer.kernels = &best_kernels();
  const auto [first, last] = shard.experts(spec.experts);
  const auto [begin, end] = shard.intermediate(spec.intermediate);
  layer.first = first;
  layer.local = last - first;
  layer.width = spec.expert_width();
  layer.intermediate = end - begin;
  layer.padded = round_up(layer.intermediate, kBlock);
  if (deployment.adapters.any()) layer.max_rank = round_up(deployment.adapters.max_rank, kRankBlock);
  return layer;
}

class CpuVectorExperts final : public Experts {
 public:
  CpuVectorExperts(const MoeAdmission& admission, const ExpertInputs& inputs, const VectorKernels* kernels)
      : admission_(admission),
        device_(inputs.device),
        stream_(inputs.stream),
        shard_(inputs.shard),
        layer_(make_layer(admission.spec(), admission.deployment(), inputs.shard)) {
    if (kernels != nullptr) layer_.kernels = kernels;
  }

  Status load(const ExpertWeights& weights) {
    const auto [begin, end] = shard_.intermediate(layer_.spec.intermediate);
    const std::int64_t parts = layer_.gated() ? 3 : 2;
    CADRE_ASSIGN(weights_, device_->allocate(static_cast<std::size_t>(layer_.local * parts * layer_.matrix_bytes())));
    prefer_huge_pages(weights_.data(), weights_.bytes());
    layer_.weights = static_cast<const std::byte*>(weights_.data());
    std::vector<std::byte> host(static_cast<std::size_t>(layer_.matrix_bytes()));
    for (std::int64_t e = 0; e < layer_.local; ++e) {
      const int expert = static_cast<int>(layer_.first + e);
      const auto put = [&](Part part, const Result<View>& matrix, int split, std::int64_t k_padded) -> Status {
        if (!matrix.ok()) return matrix.status();
        if (matrix->dtype != DType::kBF16) {
          return error(Code::kInvalidArgument, "expert ", expert, ": weights are ", matrix->describe(),
                       ", want bf16 as the layer's spec says");
        }
        pack(matrix->slice(split, begin, end), PackedType::kBF16, kBlock, k_padded, host.data());
        if (!all_finite(PackedType::kBF16, host.data(), layer_.matrix_bytes())) {
          const Projection projection = part == kGatePart ? kGate : part == kUpPart ? kUp : kDown;
          return error(Code::kInvalidFile, "tensor '", weights.tensor_name(projection, expert),
                       "' is not finite (expert ", expert, "); the file is damaged or the training diverged");
        }
        device_->upload(*stream_, const_cast<std::byte*>(layer_.matrix(e, part)), host.data(), host.size());
        return {};
      };
      if (layer_.gated()) CADRE_TRY(put(kGatePart, weights.gate(expert), 0, layer_.width));
      CADRE_TRY(put(kUpPart, weights.up(expert), 0, layer_.width));
      CADRE_TRY(put(kDownPart, weights.down(expert), 1, layer_.padded));
      weights.drop_pages(expert);  // a layer of a large model is tens of GiB
    }
    const AdapterDemand& demand = admission_.deployment().adapters;
    if (demand.any()) {
      CADRE_ASSIGN(adapters_, PackedAdapters::make(*device_, *stream_, demand.max_adapters, layer_.local, layer_.width,
                                                   layer_.padded));
      layer_.terms = adapters_.terms();
    }
    return {};
  }

  Status attach(int slot, const LayerLora& lora) override {
    CADRE_TRY(check_attach(admission_, slot, lora));
    if (lora.empty()) return {};
    return adapters_.set(*device_, *stream_, slot, terms_of_shard(lora, layer_.spec, shard_));
  }

  void detach(int slot) override {
    if (slot >= 0 && adapters_.slots() > slot) adapters_.clear(*device_, *stream_, slot);
  }

  void run(const Exec& exec, const ExpertArgs& args) const override {
    const ArenaScope scope(*exec.arena);
    const MoePlan plan =
        make_plan(exec, args.ids, args.any_adapter ? args.slots : View{}, layer_.first, layer_.first + layer_.local);
    const Scratch scratch = make_scratch(*exec.arena, layer_, args.ids.elements());
    exec.launch([layer = layer_, args, plan, scratch, threads = exec.threads] {
      run_layer(layer, args, plan, scratch, *threads);
    });
  }

 private:
  MoeAdmission admission_;
  Device* device_;
  Stream* stream_;
  ExpertShard shard_;
  Layer layer_;
  Buffer weights_;
  PackedAdapters adapters_;
};

}  // namespace

Result<std::unique_ptr<Experts>> prepare_cpu_vector(const MoeAdmission& admission, const ExpertInputs& inputs,
                                                    const VectorKernels* kernels) {
  if (&admission.backend() != &cpu_vector_backend()) {
    return error(Code::kInternal, "cpu_vector was handed an admission of ", admission.backend().name());
  }
  auto experts = std::make_unique<CpuVectorExperts>(admission, inputs, kernels);
  Status status = experts->load(*inputs.weights);
  if (!status.ok()) {
    inputs.stream->wait();  // copies may still be on their way into memory that goes now
    return status;
  }
  return std::unique_ptr<Experts>(std::move(experts));
}

std::int64_t cpu_vector_workspace(const LayerSpec& spec, const Deployment& deployment) {
  ExpertShard shard;
  shard.tensor_size = std::max(deployment.tensor_parallel, 1);
  shard.expert_size = std::max(deployment.expert_parallel, 1);
  const Layer layer = make_layer(spec, deployment, shard);
  const std::int64_t pairs = std::int64_t{deployment.max_tokens} * spec.top_k;
  // What the plan and make_scratch allocate, without an arena: sizes of a spec from outside may be absurd, and this
  // only compares.
  const long double floats = 2.0L * layer.width + layer.padded + 2.0L * layer.max_rank + 5 + 2;
  const long double bytes = 4.0L * (pairs * floats + layer.local + 1) + 64.0L * 9;
  return bytes < 9e18L ? static_cast<std::int64_t>(bytes) : std::numeric_limits<std::int64_t>::max();
}

}  // namespace cadre
