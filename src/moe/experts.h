// Experts: the routed experts of one layer, made by a backend through the gate.
#pragma once

#include <memory>
#include <vector>

#include "gate/gate.h"
#include "lora/canonical.h"
#include "tensor/exec.h"

namespace cadre {

// The weights of one layer's experts in canonical [out, in], whatever the file's layout: strided host views that stay
// valid as long as `owner` lives. Biases [out] where the spec has them.
class ExpertWeights {
 public:
  virtual ~ExpertWeights() = default;
  virtual Result<View> gate(int expert) const = 0;  // [intermediate, width], gated only
  virtual Result<View> up(int expert) const = 0;    // [intermediate, width]
  virtual Result<View> down(int expert) const = 0;  // [width, intermediate]
  virtual Result<View> gate_bias(int expert) const = 0;
  virtual Result<View> up_bias(int expert) const = 0;
  virtual Result<View> down_bias(int expert) const = 0;
  virtual std::shared_ptr<const void> owner() const = 0;
  // The file's name of one of the matrices, for messages.
  virtual std::string tensor_name(Projection, int /*expert*/) const { return "an expert's matrix"; }
  // The mapped pages are not needed for now: a backend has a copy of its own. They are read again where they are.
  virtual void drop_pages() const {}
  // The same of one expert, for a backend that copies one after another: views of its matrices end here.
  virtual void drop_pages(int /*expert*/) const {}
};

// The part of a layer that this rank holds: a slice of every expert's intermediate width, or whole experts.
struct ExpertShard {
  int tensor_rank = 0, tensor_size = 1;
  int expert_rank = 0, expert_size = 1;

  // [first, last) of n, in equal blocks.
  static std::pair<std::int64_t, std::int64_t> block(std::int64_t n, int rank, int size) {
    const std::int64_t each = (n + size - 1) / size;
    return {std::min(n, each * rank), std::min(n, each * (rank + 1))};
  }
  std::pair<std::int64_t, std::int64_t> experts(std::int64_t n) const { return block(n, expert_rank, expert_size); }
  std::pair<std::int64_t, std::int64_t> intermediate(std::int64_t n) const {
    return block(n, tensor_rank, tensor_size);
  }
};

struct ExpertInputs {
  const ExpertWeights* weights = nullptr;
  Device* device = nullptr;
  Stream* stream = nullptr;
  ExpertShard shard;
};

struct ExpertArgs {
  View out;      // float32 [T, width], overwritten with this rank's partial sum
  View x;        // float32 [T, width]
  View ids;      // int32 [T, K] global expert ids; -1: no expert
  View weights;  // float32 [T, K]
  View slots;    // int32 [T] adapter slot, -1: none
  bool any_adapter = false;
};

class Experts {
 public:
  virtual ~Experts() = default;
  // Makes an adapter's terms for this layer usable under a slot, or frees the slot. Between batches only. Refuses what
  // exceeds the admission: slots, rank, projections.
  virtual Status attach(int slot, const LayerLora& lora) = 0;
  virtual void detach(int slot) = 0;
  // Enqueues the layer. Allocates from the arena only.
  virtual void run(const Exec& exec, const ExpertArgs& args) const = 0;
};

struct MoeOp {
  using Spec = LayerSpec;
  using Deployment = cadre::Deployment;
  using Inputs = ExpertInputs;
  using Kernel = Experts;
  static std::vector<std::pair<int, double>> token_mix(const Deployment& deployment);
  static bool planning(const Deployment& deployment) { return deployment.device.described; }
};

using MoeBackend = Backend<MoeOp>;
using MoeAdmission = Admission<MoeOp>;
using MoeGate = Gate<MoeOp>;

// The backends of this project, in order of preference among equals, the reference last. `extra` are an embedder's own.
const std::vector<const MoeBackend*>& built_in_backends();
MoeGate make_moe_gate(const std::vector<const MoeBackend*>& extra = {});

// What every backend refuses in common terms: an adapter beyond what was admitted.
Status check_attach(const MoeAdmission& admission, int slot, const LayerLora& lora);

// An adapter's terms for the experts of one rank, cut to its share: [gate, up, down][expert of the rank], rank 0 where
// there is nothing. Views of the adapter's own memory.
std::vector<LowRank> terms_of_shard(const LayerLora& lora, const LayerSpec& spec, const ExpertShard& shard);

}  // namespace cadre
