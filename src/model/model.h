// Model: a checkpoint on a device, its MoE layers behind the gate, adapters attached to slots.
#pragma once

#include <cadre/selection.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "lora/canonical.h"
#include "model/builder.h"
#include "model/network.h"
#include "moe/rehearsal.h"

namespace cadre {

// Where a model's weights come from: its folder; random numbers; or nowhere, for a plan of a model that cannot run.
enum class WeightOrigin : std::uint8_t { kFiles, kDummy, kNone };

struct ModelOptions {
  std::string dir;
  std::optional<Json> config;  // in place of dir/config.json; `dir` is a name in messages then
  WeightOrigin weights = WeightOrigin::kFiles;
  std::uint64_t seed = 0;         // of random weights
  ThreadPool* threads = nullptr;  // for making them; null: the caller's thread alone. Used by load only
  std::string hf_overrides;       // fields of config.json, in JSON; may be empty
  std::shared_ptr<Device> device;
  Ranks ranks;
  DeviceCaps caps;             // what the gate plans for
  bool check_weights = false;  // look for NaN and infinity in every tensor
  bool shapes_only = false;    // for a plan: nothing is dequantised, and the model cannot run
  // Called while loading with a share in [0, 1]. May be empty.
  std::function<void(double)> progress;
};

// What adapters the MoE layers must be ready for.
struct AdapterPlan {
  int slots = 0;     // --max-loras
  int max_rank = 0;  // --max-lora-rank; 0: of the known adapters
  // Declared targets on experts, bits of Projection, for every layer; 0: those the known adapters touch.
  std::uint8_t expert_projections = 0;
  std::vector<std::shared_ptr<const Adapter>> known;
  // What other adapters need, by index into AdapterTargets::experts; see Model::add_needs.
  std::map<int, AdapterDemand> needs;
};

struct LayerSelection {
  std::vector<int> layers;  // model layers with this spec and demand
  LayerSpec spec;
  Deployment deployment;
  Selection selection;
  RehearsalReport rehearsal;
};

// How backends are chosen.
struct SelectOptions {
  Policy policy;
  Deployment base;  // its device, ranks and adapters are the model's to fill in
  RehearseMode rehearse = RehearseMode::kOff;
  ThreadPool* threads = nullptr;  // for the rehearsal; null: the caller's thread alone
  // Bytes that packed copies may take beyond the weights they replace; negative: any.
  std::int64_t memory_left = -1;
};

// Everything that a choice of backends and a plan for adapters bring, made beside what is in use.
struct PreparedModel {
  std::vector<std::pair<MoeMixer*, std::unique_ptr<Experts>>> experts;
  std::vector<LoraTable> tables;  // by site; empty: the present ones are large enough
  std::vector<LayerSelection> selections;
  AdapterPlan plan;
  std::int64_t packed_bytes = 0;
};

class Model {
 public:
  // Opens and checks the checkpoint and builds the network; MoE layers have no backend yet.
  static Result<std::unique_ptr<Model>> load(ModelOptions options);
  ~Model();

  // Chooses and prepares a backend for every MoE layer, and rehearses each.
  Status prepare(const MoeGate& gate, const SelectOptions& options, const AdapterPlan& plan);
  // The same in two steps, for a larger plan while adapters are attached: make it, then exchange it with what is in
  // use, between batches. The slots of what comes in are empty; what goes out keeps its adapters, for exchanging back.
  Result<PreparedModel> make_prepared(const MoeGate& gate, const SelectOptions& options, const AdapterPlan& plan);
  void exchange(PreparedModel& prepared);
  // Grows with every exchange that gives a layer another backend: what that computed is not what this one would have.
  std::uint64_t generation() const { return generation_; }
  // Bytes that packed copies of the experts take beyond the file's pages that they replace.
  std::int64_t packed_bytes() const { return packed_bytes_; }
  const std::vector<LayerSelection>& selections() const { return selections_; }
  // The layers as `prepare` would ask for them, without preparing: for explain.
  std::vector<LayerSelection> requests(const Deployment& base, const AdapterPlan& plan) const;

  // What an adapter asks of each MoE layer it touches, added to `needs`.
  static void add_needs(const Adapter& adapter, std::map<int, AdapterDemand>* needs);

  const ModelConfig& config() const { return config_; }
  // Whether keys once stored depend on how long their sequence was then; such keys cannot serve another sequence.
  bool rope_by_length() const { return builder_->rope_by_length; }
  // Time in the kernels of MoE layers, by backend, since the start.
  std::map<std::string, MoeTime> moe_times() const;
  const AdapterTargets& adapter_targets() const { return builder_->targets; }
  const std::vector<StateSpec>& state_specs() const { return builder_->states; }
  const AdapterPlan& plan() const { return plan_; }
  Device& device() const { return *options_.device; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }
  void stop_progress() { options_.progress = nullptr; }             // later calls of prepare report nothing
  const std::vector<std::string>& notes() const { return notes_; }  // e.g. shard tensors the index does not list

  // Between batches only. attach leaves nothing behind where it fails.
  Status attach(Stream& stream, int slot, const Adapter& adapter);
  void detach(Stream& stream, int slot);

  // Enqueues one batch. logits float32 [batch.logit_rows, vocab], dense.
  void forward(const Exec& exec, const Ops& ops, const Batch& batch, const std::vector<LayerState>& states,
               View logits) const;

 private:
  Model() = default;
  AdapterDemand demand(int target, const AdapterPlan& plan) const;
  Result<std::unique_ptr<Experts>> prepare_layer(const MoeAdmission& admission, const MoeLayer& layer) const;
  // The backend for a group of like layers: chosen, prepared on the first of them and rehearsed. Where the rehearsal
  // fails, the next admitted one, unless one is required.
  Result<std::pair<MoeAdmission, std::unique_ptr<Experts>>> choose(const MoeGate& gate, const SelectOptions& options,
                                                                   LayerSelection& group) const;

  ModelOptions options_;
  ModelConfig config_;
  std::unique_ptr<WeightLoader> loader_;
  std::unique_ptr<Builder> builder_;
  std::unique_ptr<Stream> stream_;
  Network network_;
  AdapterPlan plan_;
  std::vector<LayerSelection> selections_;
  std::uint64_t weight_bytes_ = 0;
  std::int64_t packed_bytes_ = 0;
  std::uint64_t generation_ = 0;
  std::map<std::string, MoeTime> earlier_times_;  // of selections that were exchanged
  std::vector<std::string> notes_;
};

}  // namespace cadre
