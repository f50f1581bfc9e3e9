// WeightLoader: takes tensors of a checkpoint by name, checks them, and remembers which were taken.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/quantised.h"
#include "tensor/device.h"

namespace cadre {

using Dims = std::initializer_list<std::int64_t>;

// Where on a rank's matrix rows of the whole matrix lie: [begin, end) pieces, in order. Empty: all.
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

class TensorPlanner;

class WeightLoader {
 public:
  // `reads`: false where only shapes matter; what would be dequantised is zeros then and costs nothing.
  WeightLoader(std::shared_ptr<Checkpoint> checkpoint, std::shared_ptr<Device> device, bool check_values,
               const Quantisation& quantisation = {}, bool reads = true)
      : checkpoint_(std::move(checkpoint)),
        device_(std::move(device)),
        check_values_(check_values),
        quantisation_(quantisation),
        reads_(reads) {}

  // For a checkpoint that is made as it is asked for: `planner`, which must outlive this, puts in what is missing.
  WeightLoader(std::shared_ptr<Checkpoint> checkpoint, std::shared_ptr<Device> device, const Quantisation& quantisation,
               TensorPlanner& planner)
      : WeightLoader(std::move(checkpoint), std::move(device), false, quantisation, false) {
    planner_ = &planner;
  }

  // Where the file may hold a tensor or another in its place: which it is.
  bool has(const std::string& name) const;
  const std::string& folder() const { return checkpoint_->folder(); }
  std::shared_ptr<const Checkpoint> checkpoint() const { return checkpoint_; }
  Device& device() { return *device_; }

  // Whether the file keeps a vector as a matrix of one row.
  bool is_row(const std::string& name) const;
  // Whether the file holds the tensor quantised: `host` and `device_tensor` make BF16 of it, and `quantised` leaves
  // that to the caller.
  bool is_quantised(const std::string& name) const;
  Result<QuantisedTensor> quantised(const std::string& name, Dims shape);

  // The file's tensor as a host view of exactly this shape. Refuses a missing tensor, another shape, a type that is
  // not BF16, F16 or F32, and, with check_values, NaN and infinity.
  Result<View> host(const std::string& name, Dims shape);

  // The same on the device: lent in place where the device can read the file, with the rows or columns of this rank.
  Result<View> device_tensor(const std::string& name, Dims shape, const Ranges& rows = {}, const Ranges& columns = {});

  // Tensors of the checkpoint that nothing took.
  std::vector<std::string> left_over() const;

  // Keeps device memory for as long as the model lives.
  void keep(Buffer buffer) { buffers_.push_back(std::move(buffer)); }

 private:
  // The whole tensor as BF16.
  Result<std::pair<View, std::shared_ptr<const void>>> dequantise(const std::string& name, Dims shape);

  Status make_missing(const std::string& name, Dims shape);

  std::shared_ptr<Checkpoint> checkpoint_;
  std::shared_ptr<Device> device_;
  TensorPlanner* planner_ = nullptr;
  bool check_values_;
  Quantisation quantisation_;
  bool reads_;
  std::set<std::string, std::less<>> used_;
  std::vector<Buffer> buffers_;
  std::vector<std::shared_ptr<const void>> copies_;  // of tensors at odd addresses, and of quantised ones
};

// The given ranges of dimension `dim`, one after another, as one view: a slice where that is possible, otherwise a
// dense copy that `storage` keeps.
View take_ranges(const View& view, int dim, const Ranges& ranges, std::shared_ptr<const void>& storage);

}  // namespace cadre
