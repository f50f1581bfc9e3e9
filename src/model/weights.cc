#include "model/weights.h"

#include <cmath>
#include <cstring>

#include "base/dot.h"
#include "model/tensor_plan.h"

namespace cadre {
namespace {

// Index of the first element that is not finite, or -1.
std::int64_t first_bad(const View& v) {
  const std::int64_t n = v.elements();
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(element(v.data, v.dtype, i))) return i;
  }
  return -1;
}

// The same shape, dense, at another place.
View dense_like(const View& view, void* at) {
  View out = view;
  out.data = at;
  std::int64_t step = 1;
  for (int i = out.rank - 1; i >= 0; --i) {
    out.stride[static_cast<std::size_t>(i)] = step;
    step *= out.dim(i);
  }
  return out;
}

}  // namespace

bool WeightLoader::has(const std::string& name) const {
  return checkpoint_->find(name) != nullptr || (planner_ != nullptr && planner_->has(name));
}

bool WeightLoader::is_row(const std::string& name) const {
  const TensorInfo* stored = checkpoint_->find(name);
  if (stored == nullptr) return planner_ != nullptr && planner_->is_row(name);
  return stored->shape.size() == 2 && stored->shape[0] == 1;
}

bool WeightLoader::is_quantised(const std::string& name) const {
  return QuantisedTensor::is_there(*checkpoint_, quantisation_, name) ||
         (planner_ != nullptr && planner_->quantises(name));
}

// A second request for a tensor (tied weights) gets the first one's.
Status WeightLoader::make_missing(const std::string& name, Dims shape) {
  if (planner_ == nullptr || checkpoint_->find(name) != nullptr) return {};
  if (QuantisedTensor::is_there(*checkpoint_, quantisation_, name)) return {};
  return planner_->make(*checkpoint_, name, shape);
}

Result<QuantisedTensor> WeightLoader::quantised(const std::string& name, Dims shape) {
  CADRE_TRY(make_missing(name, shape));
  CADRE_ASSIGN(QuantisedTensor tensor,
               QuantisedTensor::open(checkpoint_, quantisation_, name, {shape.begin(), shape.size()}));
  used_.insert(tensor.codes_key());
  used_.insert(tensor.scales_key());
  if (check_values_) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
    for (std::int64_t i = 0; i < tensor.matrices(); ++i) CADRE_TRY(tensor.read(i, values.data()));
  }
  return tensor;
}

Result<std::pair<View, std::shared_ptr<const void>>> WeightLoader::dequantise(const std::string& name, Dims shape) {
  CADRE_ASSIGN(const QuantisedTensor tensor, quantised(name, shape));
  const std::int64_t each = tensor.rows() * tensor.columns();
  CADRE_ASSIGN(auto memory, quantised_memory(tensor.matrices() * each));
  for (std::int64_t i = 0; reads_ && i < tensor.matrices(); ++i) CADRE_TRY(tensor.read(i, memory.get() + i * each));
  tensor.drop_pages();
  const View view(memory.get(), DType::kBF16, shape);
  return std::pair(view, std::shared_ptr<const void>(std::move(memory)));
}

Result<View> WeightLoader::host(const std::string& name, Dims shape) {
  CADRE_TRY(make_missing(name, shape));
  if (is_quantised(name)) {
    CADRE_ASSIGN(auto made, dequantise(name, shape));
    copies_.push_back(std::move(made.second));
    return made.first;
  }
  const TensorInfo* tensor = checkpoint_->find(name);
  if (tensor == nullptr) {
    return error(Code::kInvalidFile, checkpoint_->folder(), ": tensor '", name, "' is missing, want ",
                 shape_text({shape.begin(), shape.size()}),
                 "; the checkpoint is incomplete or of another model than its config");
  }
  if (!std::equal(tensor->shape.begin(), tensor->shape.end(), shape.begin(), shape.end())) {
    return error(Code::kInvalidFile, *tensor->file, ": tensor '", tensor->name, "' has shape ",
                 shape_text(tensor->shape), ", want ", shape_text({shape.begin(), shape.size()}), " by config.json");
  }
  if (!is_float_weight(tensor->dtype)) {
    return error(Code::kUnsupported, *tensor->file, ": tensor '", tensor->name, "' is ", dtype_name(tensor->dtype),
                 ", want bfloat16, float16 or float32; use an unquantised export of the model");
  }
  View view(const_cast<std::byte*>(tensor->data), tensor->dtype, shape);
  used_.insert(name);
  if (!tensor->is_aligned()) {
    auto copy = std::make_shared<std::vector<std::byte>>(tensor->bytes().begin(), tensor->bytes().end());
    view.data = copy->data();
    copies_.push_back(std::move(copy));
  }
  if (check_values_) {
    if (const std::int64_t bad = first_bad(view); bad >= 0) {
      return error(Code::kInvalidFile, *tensor->file, ": tensor '", tensor->name, "' is not finite at element ", bad,
                   "; the file is damaged or the training diverged");
    }
  }
  return view;
}

Result<View> WeightLoader::device_tensor(const std::string& name, Dims shape, const Ranges& rows,
                                         const Ranges& columns) {
  View view;
  std::shared_ptr<const void> storage = checkpoint_;
  const bool owned = is_quantised(name);
  if (owned) {
    CADRE_ASSIGN(auto made, dequantise(name, shape));
    view = made.first;
    storage = std::move(made.second);
  } else {
    CADRE_ASSIGN(view, host(name, shape));
  }
  view = take_ranges(view, 0, rows, storage);
  if (view.rank > 1) view = take_ranges(view, view.rank - 1, columns, storage);
  if (owned && !(rows.empty() && columns.empty())) {
    // This rank's part alone, so that the whole goes.
    CADRE_ASSIGN(auto part, quantised_memory(view.elements()));
    if (reads_) copy_dense(view, part.get());
    view = dense_like(view, part.get());
    storage = std::move(part);
  }
  CADRE_ASSIGN(auto imported, device_->import(view, storage));
  keep(std::move(imported.second));
  return imported.first;
}

std::vector<std::string> WeightLoader::left_over() const {
  std::vector<std::string> names;
  for (const std::string_view name : checkpoint_->names()) {
    if (!used_.contains(name)) names.emplace_back(name);
  }
  return names;
}

View take_ranges(const View& view, int dim, const Ranges& ranges, std::shared_ptr<const void>& storage) {
  if (ranges.empty()) return view;
  if (ranges.size() == 1) return view.slice(dim, ranges[0].first, ranges[0].second);
  CADRE_CHECK(dim == 0, "only rows are gathered from several ranges");
  std::int64_t rows = 0;
  for (const auto& [begin, end] : ranges) rows += end - begin;
  View out = view;
  out.shape[0] = rows;
  out = dense_like(out, nullptr);
  auto copy = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(out.bytes()));
  std::byte* to = copy->data();
  for (const auto& [begin, end] : ranges) {
    const View piece = view.slice(0, begin, end);
    copy_dense(piece, to);
    to += piece.bytes();
  }
  out.data = copy->data();
  storage = copy;
  return out;
}

}  // namespace cadre
