#include "moe/experts/cpu_reference/experts.h"

#include <algorithm>

#include "base/activation_math.h"
#include "base/dot.h"
#include "lora/table.h"
#include "moe/experts/cpu_reference/backend.h"
#include "moe/plan.h"

namespace cadre {
namespace {

enum Part { kGatePart, kUpPart, kDownPart, kParts };

// One matrix [n, k] of one expert as a kernel sees it: rows contiguous, any row stride. It lies in a device table.
struct Matrix {
  const std::byte* data = nullptr;
  const void* bias = nullptr;
  std::int64_t row_bytes = 0;
  DType dtype = DType::kF32, bias_dtype = DType::kF32;

  const void* row(std::int64_t n) const { return data + n * row_bytes; }
};

// Everything the kernel needs, by value: addresses of device memory and sizes.
struct Layer {
  LayerSpec spec;
  std::int64_t first = 0, local = 0;  // this rank's experts
  std::int64_t width = 0, intermediate = 0;
  const Matrix* matrices = nullptr;  // [local, kParts]
  const LoraEntry* lora = nullptr;   // [slots, kParts * local]; null: no adapters planned

  const Matrix& matrix(std::int64_t expert, Part part) const { return matrices[expert * kParts + part]; }
  const LoraEntry* entry(std::int32_t slot, std::int64_t expert, Part part) const {
    if (lora == nullptr || slot < 0) return nullptr;
    const LoraEntry* e = lora + (slot * kParts + part) * local + expert;
    return e->rank > 0 ? e : nullptr;
  }
};

struct Scratch {
  View x;     // [pairs, width], only where the router weight is on the input
  View gate;  // [pairs, intermediate], gated only
  View up;    // [pairs, intermediate]; becomes the activated product
  View down;  // [pairs, width]
};

// shrink = scale * (A x), in float32.
void shrink(const LoraEntry& e, const float* x, std::int64_t in, std::vector<float>& out) {
  out.resize(static_cast<std::size_t>(e.rank));
  const std::int64_t row = in * dtype_bits(e.a_dtype) / 8;
  for (std::int32_t r = 0; r < e.rank; ++r) {
    out[static_cast<std::size_t>(r)] = e.scale * dot(static_cast<const std::byte*>(e.a) + r * row, e.a_dtype, x, in);
  }
}

// y += B shrink.
void expand(const LoraEntry& e, const std::vector<float>& shrunk, std::int64_t out, float* y) {
  const std::int64_t row = e.rank * dtype_bits(e.b_dtype) / 8;
  for (std::int64_t n = 0; n < out; ++n) {
    y[n] += dot(static_cast<const std::byte*>(e.b) + n * row, e.b_dtype, shrunk.data(), e.rank);
  }
}

class Kernel {
 public:
  Kernel(const Layer& layer, const ExpertArgs& args, const MoePlan& plan, const Scratch& scratch, ThreadPool& threads)
      : layer_(layer), args_(args), plan_(plan), scratch_(scratch), threads_(threads), k_(args.ids.dim(1)) {}

  void run() {
    const std::int32_t* offset = ptr<std::int32_t>(plan_.offset);
    for (std::int64_t e = 0; e < layer_.local; ++e) {
      if (offset[e + 1] > offset[e]) active_.push_back(e);
    }
    if (layer_.spec.router_weight_on_input) weigh_input();
    if (layer_.spec.activation.gated) multiply(kGatePart, scratch_.gate, layer_.intermediate, layer_.width);
    multiply(kUpPart, scratch_.up, layer_.intermediate, layer_.width);
    for_pairs([&](std::int64_t place, std::int64_t expert) { adapt_and_activate(place, expert); });
    multiply(kDownPart, scratch_.down, layer_.width, layer_.intermediate);
    if (layer_.lora != nullptr && args_.any_adapter) {
      for_pairs([&](std::int64_t place, std::int64_t expert) { adapt_down(place, expert); });
    }
    sum();
  }

 private:
  std::int32_t pair(std::int64_t place) const { return ptr<std::int32_t>(plan_.pair)[place]; }
  std::int32_t slot(std::int64_t place) const {
    return args_.any_adapter ? ptr<std::int32_t>(args_.slots)[pair(place) / k_] : -1;
  }
  float weight(std::int32_t pair) const { return ptr<float>(args_.weights)[pair]; }
  static float* row(const View& v, std::int64_t i) { return ptr<float>(v) + i * v.step(0); }
  const float* input(std::int64_t place) const {
    return layer_.spec.router_weight_on_input ? row(scratch_.x, place) : row(args_.x, pair(place) / k_);
  }

  template <class F>
  void for_pairs(F&& body) {
    const std::int32_t* offset = ptr<std::int32_t>(plan_.offset);
    threads_.parallel_for(offset[layer_.local], 1, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t expert = std::upper_bound(offset, offset + layer_.local + 1, begin) - offset - 1;
      for (std::int64_t place = begin; place < end; ++place) {
        while (offset[expert + 1] <= place) ++expert;
        body(place, expert);
      }
    });
  }

  void weigh_input() {
    for_pairs([&](std::int64_t place, std::int64_t) {
      const float* x = row(args_.x, pair(place) / k_);
      const float w = weight(pair(place));
      float* out = row(scratch_.x, place);
      for (std::int64_t i = 0; i < layer_.width; ++i) out[i] = w * x[i];
    });
  }

  // out[place, n] = dot(matrix row n, input of place) + bias, for all pairs of all active experts. A block of matrix
  // rows stays in cache while all rows of its expert pass by.
  void multiply(Part part, const View& out, std::int64_t n_total, std::int64_t k) {
    constexpr std::int64_t kRows = 16;
    const std::int32_t* offset = ptr<std::int32_t>(plan_.offset);
    const std::int64_t blocks = (n_total + kRows - 1) / kRows;
    threads_.parallel_for(static_cast<std::int64_t>(active_.size()) * blocks, 1,
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t item = begin; item < end; ++item) {
                              const std::int64_t expert = active_[static_cast<std::size_t>(item / blocks)];
                              const Matrix& m = layer_.matrix(expert, part);
                              const std::int64_t n0 = item % blocks * kRows, n1 = std::min(n_total, n0 + kRows);
                              for (std::int64_t place = offset[expert]; place < offset[expert + 1]; ++place) {
                                const float* x = part == kDownPart ? row(scratch_.up, place) : input(place);
                                float* y = row(out, place);
                                for (std::int64_t n = n0; n < n1; ++n) {
                                  y[n] = dot(m.row(n), m.dtype, x, k);
                                  if (m.bias != nullptr) y[n] += element(m.bias, m.bias_dtype, n);
                                }
                              }
                            }
                          });
  }

  void adapt_and_activate(std::int64_t place, std::int64_t expert) {
    const bool gated = layer_.spec.activation.gated;
    float* gate = gated ? row(scratch_.gate, place) : nullptr;
    float* up = row(scratch_.up, place);
    std::vector<float> shrunk;
    const LoraEntry* shared = nullptr;  // the entry `shrunk` belongs to
    if (const LoraEntry* e = gated ? layer_.entry(slot(place), expert, kGatePart) : nullptr) {
      shrink(*e, input(place), layer_.width, shrunk);
      expand(*e, shrunk, layer_.intermediate, gate);
      shared = e;
    }
    if (const LoraEntry* e = layer_.entry(slot(place), expert, kUpPart)) {
      const bool same = shared != nullptr && shared->a == e->a && shared->scale == e->scale && shared->rank == e->rank;
      if (!same) shrink(*e, input(place), layer_.width, shrunk);
      expand(*e, shrunk, layer_.intermediate, up);
    }
    for (std::int64_t i = 0; i < layer_.intermediate; ++i) {
      up[i] = apply_activation(layer_.spec.activation, gated ? gate[i] : 0.0f, up[i]);
    }
  }

  void adapt_down(std::int64_t place, std::int64_t expert) {
    if (const LoraEntry* e = layer_.entry(slot(place), expert, kDownPart)) {
      std::vector<float> shrunk;
      shrink(*e, row(scratch_.up, place), layer_.intermediate, shrunk);
      expand(*e, shrunk, layer_.width, row(scratch_.down, place));
    }
  }

  // out[t] = sum over k, in order, of weight * down.
  void sum() {
    threads_.parallel_for(args_.out.dim(0), 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* out = row(args_.out, t);
        std::fill_n(out, layer_.width, 0.0f);
        for (std::int64_t k = 0; k < k_; ++k) {
          const std::int32_t p = static_cast<std::int32_t>(t * k_ + k);
          const std::int32_t place = ptr<std::int32_t>(plan_.place)[p];
          if (place < 0) continue;
          const float w = layer_.spec.router_weight_on_input ? 1.0f : weight(p);
          axpy(w, row(scratch_.down, place), DType::kF32, out, layer_.width);
        }
      }
    });
  }

  const Layer& layer_;
  const ExpertArgs& args_;
  const MoePlan& plan_;
  const Scratch& scratch_;
  ThreadPool& threads_;
  std::int64_t k_;
  std::vector<std::int64_t> active_;
};

class CpuReferenceExperts final : public Experts {
 public:
  CpuReferenceExperts(MoeAdmission admission, const ExpertInputs& inputs)
      : admission_(std::move(admission)), device_(inputs.device), stream_(inputs.stream), shard_(inputs.shard) {}

  Status load(const ExpertWeights& weights) {
    layer_.spec = admission_.spec();
    layer_.width = layer_.spec.expert_width();
    const auto [first, last] = shard_.experts(layer_.spec.experts);
    const auto [begin, end] = shard_.intermediate(layer_.spec.intermediate);
    layer_.first = first;
    layer_.local = last - first;
    layer_.intermediate = end - begin;
    owner_ = weights.owner();
    std::vector<Matrix> matrices(static_cast<std::size_t>(std::max<std::int64_t>(layer_.local, 1) * kParts));
    for (std::int64_t e = 0; e < layer_.local; ++e) {
      const int expert = static_cast<int>(first + e);
      const auto put = [&](Part part, Result<View> matrix, Result<View> bias, int split) -> Status {
        if (!matrix.ok()) return matrix.status();
        View m = matrix->slice(split, begin, end);
        Matrix& out = matrices[static_cast<std::size_t>(e * kParts + part)];
        CADRE_ASSIGN(const View placed, place(m, m.step(1) == 1));
        out.data = static_cast<const std::byte*>(placed.data);
        out.row_bytes = placed.step(0) * dtype_bits(placed.dtype) / 8;
        out.dtype = placed.dtype;
        if (!layer_.spec.expert_bias) return {};
        if (!bias.ok()) return bias.status();
        // A row-split projection adds its bias on one rank only.
        if (split == 1 && shard_.tensor_rank != 0) return {};
        CADRE_ASSIGN(const View b, place(split == 0 ? bias->slice(0, begin, end) : *bias, false));
        out.bias = b.data;
        out.bias_dtype = b.dtype;
        return {};
      };
      if (layer_.spec.activation.gated) CADRE_TRY(put(kGatePart, weights.gate(expert), weights.gate_bias(expert), 0));
      CADRE_TRY(put(kUpPart, weights.up(expert), weights.up_bias(expert), 0));
      CADRE_TRY(put(kDownPart, weights.down(expert), weights.down_bias(expert), 1));
    }
    CADRE_ASSIGN(table_, device_->allocate(matrices.size() * sizeof(Matrix)));
    device_->upload(*stream_, table_.data(), matrices.data(), matrices.size() * sizeof(Matrix));
    layer_.matrices = static_cast<const Matrix*>(table_.data());
    const AdapterDemand& demand = admission_.deployment().adapters;
    if (demand.any()) {
      CADRE_ASSIGN(lora_,
                   LoraTable::make(*device_, *stream_, demand.max_adapters, static_cast<int>(kParts * layer_.local)));
      layer_.lora = lora_.entries();
    }
    return {};
  }

  Status attach(int slot, const LayerLora& lora) override {
    CADRE_TRY(check_attach(admission_, slot, lora));
    if (lora.empty()) return {};
    return lora_.set(*device_, *stream_, slot, terms_of_shard(lora, layer_.spec, shard_));
  }

  void detach(int slot) override {
    if (lora_.slots() > slot) lora_.clear(*device_, *stream_, slot);
  }

  void run(const Exec& exec, const ExpertArgs& args) const override {
    const ArenaScope scope(*exec.arena);
    const std::int64_t pairs = std::max<std::int64_t>(args.ids.elements(), 1);
    const MoePlan plan =
        make_plan(exec, args.ids, args.any_adapter ? args.slots : View{}, layer_.first, layer_.first + layer_.local);
    Scratch scratch;
    if (layer_.spec.router_weight_on_input) scratch.x = exec.arena->alloc(DType::kF32, {pairs, layer_.width});
    if (layer_.spec.activation.gated) scratch.gate = exec.arena->alloc(DType::kF32, {pairs, layer_.intermediate});
    scratch.up = exec.arena->alloc(DType::kF32, {pairs, layer_.intermediate});
    scratch.down = exec.arena->alloc(DType::kF32, {pairs, layer_.width});
    exec.launch([layer = layer_, args, plan, scratch, threads = exec.threads] {
      Kernel(layer, args, plan, scratch, *threads).run();
    });
  }

 private:
  // In place where allowed, else a dense copy on the device.
  Result<View> place(const View& host, bool in_place) {
    View source = host;
    std::shared_ptr<const void> owner = owner_;
    if (!in_place && !host.dense()) {
      auto copy = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(host.bytes()));
      copy_dense(host, copy->data());
      source = host.rank == 1 ? View(copy->data(), host.dtype, {host.dim(0)})
                              : View(copy->data(), host.dtype, {host.dim(0), host.dim(1)});
      owner = copy;
    }
    CADRE_ASSIGN(auto imported, device_->import(source, owner));
    buffers_.push_back(std::move(imported.second));
    return imported.first;
  }

  MoeAdmission admission_;
  Device* device_;
  Stream* stream_;
  ExpertShard shard_;
  Layer layer_;
  std::shared_ptr<const void> owner_;
  std::vector<Buffer> buffers_;
  Buffer table_;
  LoraTable lora_;
};

}  // namespace

Result<std::unique_ptr<Experts>> prepare_cpu_reference(const MoeAdmission& admission, const ExpertInputs& inputs) {
  if (&admission.backend() != &cpu_reference_backend()) {
    return error(Code::kInternal, "cpu_reference was handed an admission of ", admission.backend().name());
  }
  auto experts = std::make_unique<CpuReferenceExperts>(admission, inputs);
  Status status = experts->load(*inputs.weights);
  if (!status.ok()) {
    inputs.stream->wait();  // copies may still be on their way into memory that goes now
    return status;
  }
  return std::unique_ptr<Experts>(std::move(experts));
}

}  // namespace cadre
