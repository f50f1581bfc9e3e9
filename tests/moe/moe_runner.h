// Data for a layer of experts, and one call of a backend on it through the gate.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "moe/experts.h"
#include "support/exec_fixture.h"

namespace cadre::test {

// ---- weights ----------------------------------------------------------------------------------------------------

enum class Storage { kPlain, kTransposed, kInterleaved };  // how the "file" lays matrices out

// Random weights of the spec's type for every expert of the layer. Values are kept as float32 as well, exactly as the
// type stores them.
class RandomWeights final : public ExpertWeights {
 public:
  RandomWeights(const LayerSpec& spec, unsigned seed, Storage storage = Storage::kPlain);

  Result<View> gate(int expert) const override { return matrices_[at(expert, 0)]; }
  Result<View> up(int expert) const override { return matrices_[at(expert, 1)]; }
  Result<View> down(int expert) const override { return matrices_[at(expert, 2)]; }
  Result<View> gate_bias(int expert) const override { return biases_[at(expert, 0)]; }
  Result<View> up_bias(int expert) const override { return biases_[at(expert, 1)]; }
  Result<View> down_bias(int expert) const override { return biases_[at(expert, 2)]; }
  std::shared_ptr<const void> owner() const override { return bytes_; }

  // [out, in] and [out]; part 0 gate, 1 up, 2 down.
  const Floats& values(int expert, int part) const { return values_[at(expert, part)]; }
  const Floats& bias_values(int expert, int part) const { return bias_values_[at(expert, part)]; }

 private:
  static std::size_t at(int expert, int part) { return static_cast<std::size_t>(expert * 3 + part); }
  std::vector<Floats> values_, bias_values_;
  std::vector<View> matrices_, biases_;
  std::shared_ptr<std::deque<std::vector<std::byte>>> bytes_;
};

// ---- adapters ---------------------------------------------------------------------------------------------------

struct AdapterShape {
  AdapterLayout layout = kPerExpert;
  int min_rank = 1, max_rank = 8;  // of each expert and projection, drawn anew; 0: the expert is left alone
  std::uint8_t projections = kGate | kUp | kDown;
  std::vector<DType> dtypes = {DType::kBF16, DType::kF32, DType::kF16};
  float size = 1.0f;  // of the delta beside the base output
};

// The largest adapter that the demand allows.
AdapterShape shape_of(const AdapterDemand& demand);

// One adapter of the layer; `lora` points into memory that this object owns.
struct RandomAdapter {
  RandomAdapter(const LayerSpec& spec, const AdapterShape& shape, unsigned seed);
  LayerLora lora;

 private:
  std::deque<std::vector<std::byte>> bytes_;
};

// ---- one call ---------------------------------------------------------------------------------------------------

struct MoeBatch {
  std::int64_t tokens = 0, top_k = 0, width = 0;
  Floats x;        // [tokens, width]
  Ints ids;        // [tokens, top_k]
  Floats weights;  // [tokens, top_k]
  Ints slots;      // [tokens], -1: no adapter
};

enum class Ids { kDistinct, kWithHoles, kOneExpert };  // holes: -1, and numbers beyond the layer

MoeBatch random_batch(const LayerSpec& spec, std::int64_t tokens, int slots, Ids ids, unsigned seed);
// Rows of a batch as a batch of their own.
MoeBatch take_rows(const MoeBatch& batch, const std::vector<std::int64_t>& rows);

using Adapters = std::map<int, const RandomAdapter*>;  // by slot

// Experts of one backend, ready to run.
class PreparedExperts {
 public:
  // Takes the place of the admission's own prepare.
  using Maker = std::function<Result<std::unique_ptr<Experts>>(const MoeAdmission&, const ExpertInputs&)>;

  // `policy` as on the command line: "require cpu_vector", "auto". The shard follows from the deployment's parallelism
  // and the ranks given.
  static Result<std::unique_ptr<PreparedExperts>> make(const std::string& policy, const LayerSpec& spec,
                                                       const Deployment& deployment, const RandomWeights& weights,
                                                       const Machine& machine = {}, int tensor_rank = 0,
                                                       int expert_rank = 0, const Maker& maker = {});

  const Selection& selection() const { return selection_; }
  Experts& experts() { return *experts_; }
  Status attach(int slot, const RandomAdapter& adapter) { return experts_->attach(slot, adapter.lora); }
  // This rank's partial sum [tokens, width]. `any_adapter` defaults to whether the batch names a slot.
  Floats run(const MoeBatch& batch) {
    return run(batch, std::any_of(batch.slots.begin(), batch.slots.end(), [](int s) { return s >= 0; }));
  }
  Floats run(const MoeBatch& batch, bool any_adapter);
  // Arena bytes that such a call takes.
  std::size_t workspace(const MoeBatch& batch, bool any_adapter);

 private:
  void call(const MoeBatch& batch, bool any_adapter, std::size_t* bytes, Floats* out);
  PreparedExperts() = default;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Experts> experts_;
  Selection selection_;
};

// What a layer asks for, with the processor's instruction sets and enough cores: a deployment to start from.
Deployment here();

// Prepares, attaches, runs once.
Result<Floats> run_moe(const std::string& policy, const LayerSpec& spec, const Deployment& deployment,
                       const RandomWeights& weights, const Adapters& adapters, const MoeBatch& batch,
                       const Machine& machine = {}, int tensor_rank = 0, int expert_rank = 0);

// ---- the same in double precision, sharing no code with any backend (moe_exact.cc) --------------------------------

// The whole layer, or one rank's part. `magnitude` bounds, times a backend's relative error of one dot product, what
// rounding can do to a result: the sums of the terms' absolute values, carried through the activation.
std::vector<Exact> moe_exact(const LayerSpec& spec, const RandomWeights& weights, const Adapters& adapters,
                             const MoeBatch& batch, const ExpertShard& shard = {});

}  // namespace cadre::test
