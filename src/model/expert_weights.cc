#include "model/expert_weights.h"

#include "base/result.h"

namespace cadre {
namespace {

class LoadedExperts final : public ExpertWeights {
 public:
  struct Expert {
    View gate, up, down, gate_bias, up_bias, down_bias;
  };
  LoadedExperts(std::vector<Expert> experts, const WeightLoader& loader, ExpertNames names)
      : experts_(std::move(experts)), checkpoint_(loader.checkpoint()), names_(std::move(names)) {}

  Result<View> gate(int e) const override { return at(e).gate; }
  Result<View> up(int e) const override { return at(e).up; }
  Result<View> down(int e) const override { return at(e).down; }
  Result<View> gate_bias(int e) const override { return at(e).gate_bias; }
  Result<View> up_bias(int e) const override { return at(e).up_bias; }
  Result<View> down_bias(int e) const override { return at(e).down_bias; }
  std::shared_ptr<const void> owner() const override { return checkpoint_; }

  std::string tensor_name(Projection part, int e) const override {
    const std::string stacked = names_.module + "." + (part == kDown ? names_.stacked_down : names_.stacked_up);
    if (checkpoint_->find(stacked) != nullptr) return stacked;
    const std::string& name = part == kGate ? names_.gate : part == kUp ? names_.up : names_.down;
    return names_.module + "." + std::to_string(e) + "." + name + ".weight";
  }

  void drop_pages() const override {
    for (int e = 0; e < static_cast<int>(experts_.size()); ++e) {
      for (const Projection part : {kGate, kUp, kDown}) {
        const TensorInfo* tensor = checkpoint_->find(tensor_name(part, e));
        if (tensor != nullptr) checkpoint_->drop_pages(*tensor);
      }
    }
  }

 private:
  const Expert& at(int e) const { return experts_[static_cast<std::size_t>(e)]; }
  std::vector<Expert> experts_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  ExpertNames names_;
};

// Every second element of dimension 0, from `first`.
View alternate(const View& v, std::int64_t first) {
  View out = v.slice(0, first, v.dim(0));
  out.shape[0] = v.dim(0) / 2;
  out.stride[0] *= 2;
  return out;
}

}  // namespace

Result<std::unique_ptr<ExpertWeights>> open_expert_weights(WeightLoader& loader, const ExpertNames& names,
                                                           const LayerSpec& spec) {
  const std::int64_t width = spec.expert_width(), inner = spec.intermediate;
  const bool gated = spec.activation.gated;
  // Grows with the tensors found, so a config that promises experts which the files lack costs no memory.
  std::vector<LoadedExperts::Expert> experts;
  // Backends take one type for all matrices of a layer's experts.
  std::string first;
  DType type = DType::kF32;
  const auto matrix = [&](const std::string& name, Dims shape) -> Result<View> {
    CADRE_ASSIGN(const View view, loader.host(name, shape));
    if (first.empty()) {
      first = name;
      type = view.dtype;
    }
    if (view.dtype != type) {
      return error(Code::kUnsupported, loader.folder(), ": tensor '", name, "' is ", dtype_name(view.dtype), " and '",
                   first, "' is ", dtype_name(type), ", want one type for all experts of a layer");
    }
    return view;
  };
  const std::string stacked_up = names.module + "." + names.stacked_up;
  if (loader.has(stacked_up)) {
    const std::int64_t rows = gated ? 2 * inner : inner;
    CADRE_ASSIGN(const View up, names.transposed ? matrix(stacked_up, {spec.experts, width, rows})
                                                 : matrix(stacked_up, {spec.experts, rows, width}));
    const std::string stacked_down = names.module + "." + names.stacked_down;
    CADRE_ASSIGN(const View down, names.transposed ? matrix(stacked_down, {spec.experts, inner, width})
                                                   : matrix(stacked_down, {spec.experts, width, inner}));
    View up_bias, down_bias;
    if (spec.expert_bias) {
      CADRE_ASSIGN(up_bias, loader.host(stacked_up + "_bias", {spec.experts, rows}));
      CADRE_ASSIGN(down_bias, loader.host(stacked_down + "_bias", {spec.experts, width}));
    }
    // The gate's and the up projection's part of what holds both, along dimension 0.
    const auto divide = [&](const View& both, View& gate, View& up_part) {
      if (!gated) {
        up_part = both;
      } else if (names.interleaved) {
        gate = alternate(both, 0);
        up_part = alternate(both, 1);
      } else {
        gate = both.slice(0, 0, inner);
        up_part = both.slice(0, inner, 2 * inner);
      }
    };
    for (std::int64_t e = 0; e < spec.experts; ++e) {
      LoadedExperts::Expert& x = experts.emplace_back();
      const View both = names.transposed ? up.at(e).transposed() : up.at(e);
      x.down = names.transposed ? down.at(e).transposed() : down.at(e);
      divide(both, x.gate, x.up);
      if (spec.expert_bias) {
        divide(up_bias.at(e), x.gate_bias, x.up_bias);
        x.down_bias = down_bias.at(e);
      }
    }
  } else {
    for (std::int64_t e = 0; e < spec.experts; ++e) {
      LoadedExperts::Expert& x = experts.emplace_back();
      const std::string module = names.module + "." + std::to_string(e) + ".";
      if (gated) {
        CADRE_ASSIGN(x.gate, matrix(module + names.gate + ".weight", {inner, width}));
      }
      CADRE_ASSIGN(x.up, matrix(module + names.up + ".weight", {inner, width}));
      CADRE_ASSIGN(x.down, matrix(module + names.down + ".weight", {width, inner}));
      if (spec.expert_bias) {
        if (gated) {
          CADRE_ASSIGN(x.gate_bias, loader.host(module + names.gate + ".bias", {inner}));
        }
        CADRE_ASSIGN(x.up_bias, loader.host(module + names.up + ".bias", {inner}));
        CADRE_ASSIGN(x.down_bias, loader.host(module + names.down + ".bias", {width}));
      }
    }
  }
  return std::unique_ptr<ExpertWeights>(std::make_unique<LoadedExperts>(std::move(experts), loader, names));
}

}  // namespace cadre
