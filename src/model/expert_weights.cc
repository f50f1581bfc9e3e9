#include "model/expert_weights.h"

#include <map>
#include <mutex>
#include <optional>

#include "base/result.h"

namespace cadre {
namespace {

// Which rows of a matrix: gate and up lie in one where they are stacked.
enum class Cut : std::uint8_t { kAll, kFront, kBack, kEven, kOdd };

View cut(const View& v, Cut rows) {
  if (rows == Cut::kAll) return v;
  const std::int64_t half = v.dim(0) / 2;
  if (rows == Cut::kFront) return v.slice(0, 0, half);
  if (rows == Cut::kBack) return v.slice(0, half, v.dim(0));
  View out = v.slice(0, rows == Cut::kEven ? 0 : 1, v.dim(0));
  out.shape[0] = half;
  out.stride[0] *= 2;
  return out;
}

// A tensor of the file: one expert's matrix, or all of them.
struct Source {
  std::string key;  // as the checkpoint finds it
  View view;        // undefined where quantised
  std::optional<QuantisedTensor> quantised;
  bool stacked = false, transposed = false;
};

struct Part {
  int source = -1;
  Cut rows = Cut::kAll;
};

// What quantised matrices became. Views into it live as long as it does.
struct Dequantised {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::map<std::pair<int, int>, std::shared_ptr<std::uint16_t>> matrices;  // by source and expert
};

class LoadedExperts final : public ExpertWeights {
 public:
  struct Expert {
    Part gate, up, down;
    View gate_bias, up_bias, down_bias;
  };
  LoadedExperts(std::vector<Source> sources, std::vector<Expert> experts, const WeightLoader& loader)
      : sources_(std::move(sources)), experts_(std::move(experts)), checkpoint_(loader.checkpoint()) {
    for (const Source& source : sources_) quantised_ = quantised_ || source.quantised.has_value();
  }

  Result<View> gate(int e) const override { return matrix(at(e).gate, e); }
  Result<View> up(int e) const override { return matrix(at(e).up, e); }
  Result<View> down(int e) const override { return matrix(at(e).down, e); }
  Result<View> gate_bias(int e) const override { return at(e).gate_bias; }
  Result<View> up_bias(int e) const override { return at(e).up_bias; }
  Result<View> down_bias(int e) const override { return at(e).down_bias; }

  std::shared_ptr<const void> owner() const override {
    if (!quantised_) return checkpoint_;
    const std::lock_guard lock(mutex_);
    return dequantised();
  }

  std::string tensor_name(Projection part, int e) const override {
    const Expert& x = at(e);
    const int source = (part == kGate ? x.gate : part == kUp ? x.up : x.down).source;
    if (source < 0) return ExpertWeights::tensor_name(part, e);
    const TensorInfo* tensor = checkpoint_->find(sources_[static_cast<std::size_t>(source)].key);
    return tensor != nullptr ? tensor->name : ExpertWeights::tensor_name(part, e);
  }

  void drop_pages() const override {
    for (const Source& source : sources_) {
      if (source.quantised) {
        source.quantised->drop_pages();
      } else if (const TensorInfo* tensor = checkpoint_->find(source.key)) {
        checkpoint_->drop_pages(*tensor);
      }
    }
    // Whoever lends from it keeps it; a later call makes another.
    const std::lock_guard lock(mutex_);
    dequantised_.reset();
  }

  void drop_pages(int e) const override {
    const Expert& x = at(e);
    for (const Part& part : {x.gate, x.up, x.down}) {
      if (part.source < 0) continue;
      const Source& source = sources_[static_cast<std::size_t>(part.source)];
      if (source.quantised) {
        const std::lock_guard lock(mutex_);
        // Not where someone was given the owner: it may have views of any expert.
        if (dequantised_.use_count() == 1) dequantised_->matrices.erase({part.source, source.stacked ? e : 0});
      }
      if (source.stacked) continue;  // its other experts are in use
      if (source.quantised) {
        source.quantised->drop_pages();
      } else if (const TensorInfo* tensor = checkpoint_->find(source.key)) {
        checkpoint_->drop_pages(*tensor);
      }
    }
  }

 private:
  const Expert& at(int e) const { return experts_[static_cast<std::size_t>(e)]; }

  std::shared_ptr<Dequantised> dequantised() const {
    if (dequantised_ == nullptr) dequantised_ = std::make_shared<Dequantised>(Dequantised{checkpoint_, {}});
    return dequantised_;
  }

  Result<View> matrix(const Part& part, int e) const {
    if (part.source < 0) return View();  // experts without a gate
    const Source& source = sources_[static_cast<std::size_t>(part.source)];
    View v;
    if (source.quantised) {
      const QuantisedTensor& tensor = *source.quantised;
      const int index = source.stacked ? e : 0;
      const std::lock_guard lock(mutex_);
      std::shared_ptr<std::uint16_t>& memory = dequantised()->matrices[{part.source, index}];
      if (memory == nullptr) {
        CADRE_ASSIGN(auto made, quantised_memory(tensor.rows() * tensor.columns()));
        CADRE_TRY(tensor.read(index, made.get()));
        memory = std::move(made);
      }
      v = View(memory.get(), DType::kBF16, {tensor.rows(), tensor.columns()});
    } else {
      v = source.stacked ? source.view.at(e) : source.view;
    }
    return cut(source.transposed ? v.transposed() : v, part.rows);
  }

  std::vector<Source> sources_;
  std::vector<Expert> experts_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  bool quantised_ = false;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Dequantised> dequantised_;
};

// Opens the tensors of one layer. Grows with the tensors found, so a config that promises experts which the files lack
// costs no memory.
class Opener {
 public:
  Opener(WeightLoader& loader, const ExpertNames& names, const LayerSpec& spec)
      : loader_(loader), names_(names), spec_(spec) {}

  Status stacked(const std::string& up_name) {
    const std::int64_t width = spec_.expert_width(), inner = spec_.intermediate;
    const bool gated = spec_.activation.gated;
    const std::int64_t rows = gated ? 2 * inner : inner;
    CADRE_ASSIGN(const int up, source_of_all(up_name, rows, width));
    const std::string down_name = names_.module + "." + names_.stacked_down;
    CADRE_ASSIGN(const int down, source_of_all(down_name, width, inner));
    View up_bias, down_bias;
    if (spec_.expert_bias) {
      CADRE_ASSIGN(up_bias, loader_.host(up_name + "_bias", {spec_.experts, rows}));
      CADRE_ASSIGN(down_bias, loader_.host(down_name + "_bias", {spec_.experts, width}));
    }
    const Cut gate_rows = names_.interleaved ? Cut::kEven : Cut::kFront;
    const Cut up_rows = !gated ? Cut::kAll : names_.interleaved ? Cut::kOdd : Cut::kBack;
    for (std::int64_t e = 0; e < spec_.experts; ++e) {
      LoadedExperts::Expert& x = experts_.emplace_back();
      if (gated) x.gate = {up, gate_rows};
      x.up = {up, up_rows};
      x.down = {down};
      if (spec_.expert_bias) {
        if (gated) x.gate_bias = cut(up_bias.at(e), gate_rows);
        x.up_bias = cut(up_bias.at(e), up_rows);
        x.down_bias = down_bias.at(e);
      }
    }
    return {};
  }

  Status per_expert() {
    const std::int64_t width = spec_.expert_width(), inner = spec_.intermediate;
    const bool gated = spec_.activation.gated;
    for (std::int64_t e = 0; e < spec_.experts; ++e) {
      LoadedExperts::Expert& x = experts_.emplace_back();
      const std::string module = names_.module + "." + std::to_string(e) + ".";
      if (gated) {
        CADRE_ASSIGN(x.gate.source, source(module + names_.gate + ".weight", {inner, width}));
      }
      CADRE_ASSIGN(x.up.source, source(module + names_.up + ".weight", {inner, width}));
      CADRE_ASSIGN(x.down.source, source(module + names_.down + ".weight", {width, inner}));
      if (spec_.expert_bias) {
        if (gated) {
          CADRE_ASSIGN(x.gate_bias, loader_.host(module + names_.gate + ".bias", {inner}));
        }
        CADRE_ASSIGN(x.up_bias, loader_.host(module + names_.up + ".bias", {inner}));
        CADRE_ASSIGN(x.down_bias, loader_.host(module + names_.down + ".bias", {width}));
      }
    }
    return {};
  }

  OpenedExperts finish() {
    return {std::make_unique<LoadedExperts>(std::move(sources_), std::move(experts_), loader_), dtype_};
  }

 private:
  Result<int> source_of_all(const std::string& name, std::int64_t out, std::int64_t in) {
    // MXFP4 packs along `in`, so that one lies last.
    const bool transposed = names_.transposed && !loader_.has(name + "_blocks");
    CADRE_ASSIGN(const int at,
                 transposed ? source(name, {spec_.experts, in, out}) : source(name, {spec_.experts, out, in}));
    sources_.back().stacked = true;
    sources_.back().transposed = transposed;
    return at;
  }

  Result<int> source(const std::string& name, Dims shape) {
    Source& source = sources_.emplace_back();
    source.key = name;
    DType dtype = DType::kBF16;
    if (loader_.is_quantised(name)) {
      CADRE_ASSIGN(source.quantised, loader_.quantised(name, shape));
      source.key = source.quantised->codes_key();
    } else {
      CADRE_ASSIGN(source.view, loader_.host(name, shape));
      dtype = source.view.dtype;
    }
    // Backends take one type for all matrices of a layer's experts.
    if (sources_.size() == 1) dtype_ = dtype;
    if (dtype != dtype_) {
      return error(Code::kUnsupported, loader_.folder(), ": tensor '", name, "' is ", dtype_name(dtype), " and '",
                   sources_.front().key, "' is ", dtype_name(dtype_), ", want one type for all experts of a layer");
    }
    return static_cast<int>(sources_.size()) - 1;
  }

  WeightLoader& loader_;
  const ExpertNames& names_;
  const LayerSpec& spec_;
  std::vector<Source> sources_;
  std::vector<LoadedExperts::Expert> experts_;
  DType dtype_ = DType::kBF16;
};

}  // namespace

Result<OpenedExperts> open_expert_weights(WeightLoader& loader, const ExpertNames& names, const LayerSpec& spec) {
  Opener opener(loader, names, spec);
  const std::string stacked_up = names.module + "." + names.stacked_up;
  if (loader.has(stacked_up) || loader.is_quantised(stacked_up)) {
    CADRE_TRY(opener.stacked(stacked_up));
  } else {
    CADRE_TRY(opener.per_expert());
  }
  return opener.finish();
}

}  // namespace cadre
