#include "tensor/view.h"

#include <sstream>

namespace cadre {

View::View(void* at, DType type, std::initializer_list<std::int64_t> dims)
    : data(at), dtype(type), rank(static_cast<int>(dims.size())) {
  CADRE_CHECK(rank <= kMaxRank, "a view has at most four dimensions");
  std::size_t i = 0;
  for (const std::int64_t d : dims) shape[i++] = d;
  std::int64_t step = 1;
  for (int k = rank - 1; k >= 0; --k) {
    stride[static_cast<std::size_t>(k)] = step;
    step *= shape[static_cast<std::size_t>(k)];
  }
}

std::int64_t View::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= dim(i);
  return rank == 0 ? 0 : n;
}

bool View::dense() const {
  if (elements() == 0) return true;
  std::int64_t want = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (dim(i) != 1 && step(i) != want) return false;
    want *= dim(i);
  }
  return true;
}

View View::slice(int i, std::int64_t begin, std::int64_t end) const {
  CADRE_CHECK(i < rank && 0 <= begin && begin <= end && end <= dim(i), "slice outside the view");
  View v = *this;
  // Views that only measure have no memory to point into.
  if (data != nullptr) v.data = static_cast<std::byte*>(data) + begin * step(i) * dtype_bits(dtype) / 8;
  v.shape[static_cast<std::size_t>(i)] = end - begin;
  return v;
}

View View::at(std::int64_t index) const {
  View v = slice(0, index, index + 1);
  for (int i = 1; i < rank; ++i) {
    v.shape[static_cast<std::size_t>(i - 1)] = dim(i);
    v.stride[static_cast<std::size_t>(i - 1)] = step(i);
  }
  v.rank = rank - 1;
  return v;
}

View View::transposed() const {
  CADRE_CHECK(rank == 2, "only a matrix is transposed");
  View v = *this;
  std::swap(v.shape[0], v.shape[1]);
  std::swap(v.stride[0], v.stride[1]);
  return v;
}

View View::reshaped(std::initializer_list<std::int64_t> dims) const {
  CADRE_CHECK(dense(), "only a dense view is reshaped");
  View v(data, dtype, dims);
  CADRE_CHECK(v.elements() == elements(), "a reshape keeps the number of elements");
  return v;
}

View View::split_last(std::int64_t parts) const {
  CADRE_CHECK(rank == 2 && step(1) == 1 && dim(1) % parts == 0, "cannot split the last dimension");
  View v = *this;
  v.rank = 3;
  v.shape[1] = parts;
  v.shape[2] = dim(1) / parts;
  v.stride[1] = v.shape[2];
  v.stride[2] = 1;
  return v;
}

std::string View::describe() const {
  std::ostringstream out;
  out << dtype_name(dtype) << " [";
  for (int i = 0; i < rank; ++i) out << (i ? ", " : "") << dim(i);
  out << "]";
  return std::move(out).str();
}

}  // namespace cadre
