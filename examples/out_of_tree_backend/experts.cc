#include "out_of_tree_backend/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/float16.h"
#include "base/result.h"

namespace scalar {
namespace {

using cadre::Bf16;
using cadre::View;

// By value in every launched closure: addresses in device memory, and sizes.
struct Layer {
  const Bf16* gate = nullptr;  // [experts, intermediate, width]
  const Bf16* up = nullptr;    // [experts, intermediate, width]
  const Bf16* down = nullptr;  // [experts, width, intermediate]
  std::int64_t experts = 0, width = 0, intermediate = 0;
  Combine combine = nullptr;
};

float dot(const Bf16* w, const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += cadre::to_float(w[i]) * x[i];
  return sum;
}

// One row through its experts. `inner` holds intermediate floats.
void run_row(const Layer& layer, const float* x, const std::int32_t* ids, const float* weights, std::int64_t top_k,
             float* inner, float* out) {
  const std::int64_t width = layer.width, size = layer.intermediate;
  std::fill_n(out, width, 0.0f);
  for (std::int64_t k = 0; k < top_k; ++k) {
    if (ids[k] < 0 || ids[k] >= layer.experts) continue;  // no expert
    const std::int64_t at = ids[k] * size * width;
    for (std::int64_t i = 0; i < size; ++i) {
      inner[i] = layer.combine(dot(layer.gate + at + i * width, x, width), dot(layer.up + at + i * width, x, width));
    }
    for (std::int64_t n = 0; n < width; ++n) out[n] += weights[k] * dot(layer.down + at + n * size, inner, size);
  }
}

class ScalarExperts final : public cadre::Experts {
 public:
  explicit ScalarExperts(cadre::MoeAdmission admission) : admission_(std::move(admission)) {}

  cadre::Status load(const cadre::ExpertInputs& inputs, Combine combine) {
    const cadre::LayerSpec& spec = admission_.spec();
    layer_.experts = spec.experts;
    layer_.width = spec.expert_width();
    layer_.intermediate = spec.intermediate;
    layer_.combine = combine;
    CADRE_ASSIGN(layer_.gate, pack(inputs, [&](int e) { return inputs.weights->gate(e); }));
    CADRE_ASSIGN(layer_.up, pack(inputs, [&](int e) { return inputs.weights->up(e); }));
    CADRE_ASSIGN(layer_.down, pack(inputs, [&](int e) { return inputs.weights->down(e); }));
    return {};
  }

  // The record admits no adapters, so `check_attach` refuses every one that is not empty.
  cadre::Status attach(int slot, const cadre::LayerLora& lora) override {
    return cadre::check_attach(admission_, slot, lora);
  }
  void detach(int) override {}

  void run(const cadre::Exec& exec, const cadre::ExpertArgs& args) const override {
    const cadre::ArenaScope scope(*exec.arena);
    const std::int64_t rows = args.x.dim(0);
    const View inner = exec.arena->alloc(cadre::DType::kF32, {rows, layer_.intermediate});
    // Work is enqueued: the closure holds copies, and nothing outside it reads the tensors.
    exec.launch([layer = layer_, args, inner, rows, threads = exec.threads] {
      const std::int64_t top_k = args.ids.dim(1);
      threads->parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          run_row(layer, cadre::ptr<float>(args.x) + t * args.x.step(0),
                  cadre::ptr<std::int32_t>(args.ids) + t * args.ids.step(0),
                  cadre::ptr<float>(args.weights) + t * args.weights.step(0), top_k,
                  cadre::ptr<float>(inner) + t * inner.step(0), cadre::ptr<float>(args.out) + t * args.out.step(0));
        }
      });
    });
  }

 private:
  // All experts' matrices of one kind, dense, in device memory. The file may hold them strided or transposed.
  template <class Get>
  cadre::Result<const Bf16*> pack(const cadre::ExpertInputs& inputs, const Get& get) {
    const std::size_t matrix = static_cast<std::size_t>(layer_.width * layer_.intermediate);
    CADRE_ASSIGN(cadre::Buffer memory,
                 inputs.device->allocate(matrix * static_cast<std::size_t>(layer_.experts) * sizeof(Bf16)));
    std::vector<Bf16> dense(matrix);
    for (std::int64_t e = 0; e < layer_.experts; ++e) {
      CADRE_ASSIGN(const View view, get(static_cast<int>(e)));
      cadre::copy_dense(view, dense.data());
      inputs.device->upload(*inputs.stream, static_cast<Bf16*>(memory.data()) + static_cast<std::size_t>(e) * matrix,
                            dense.data(), matrix * sizeof(Bf16));
    }
    packed_.push_back(std::move(memory));
    return static_cast<const Bf16*>(packed_.back().data());
  }

  cadre::MoeAdmission admission_;
  Layer layer_;
  std::vector<cadre::Buffer> packed_;
};

}  // namespace

float silu_gate(float gate, float up) { return gate / (1.0f + std::exp(-gate)) * up; }

cadre::Result<std::unique_ptr<cadre::Experts>> make_experts(const cadre::MoeAdmission& admission,
                                                            const cadre::ExpertInputs& inputs, Combine combine) {
  auto experts = std::make_unique<ScalarExperts>(admission);
  CADRE_TRY(experts->load(inputs, combine));
  return std::unique_ptr<cadre::Experts>(std::move(experts));
}

}  // namespace scalar
