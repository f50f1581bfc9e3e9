// AdapterSet: the adapters of an engine, their slots and versions, and the plan of the MoE layers they need.
#pragma once

#include <map>

#include "engine/runner.h"
#include "engine/sequence.h"

namespace cadre {

class AdapterSet {
 public:
  AdapterSet(const EngineOptions& options, MoeGate gate, SelectOptions select)
      : gate_(std::move(gate)), select_(std::move(select)) {
    plan_.slots = options.max_loras;
    plan_.max_rank = options.max_lora_rank;
    if (options.loras_on_experts) plan_.expert_projections = kGate | kUp | kDown;
  }

  // Reads the adapters of the options and prepares the model for all of them.
  Status prepare(Model& model, const std::vector<AdapterSource>& sources);
  // Attaches what prepare read; needs the runner.
  Status attach(Runner& runner);

  Result<AdapterInfo> load(Runner& runner, const AdapterSource& source);
  Status unload(std::string_view name);
  // Null for the base model (an empty name); an error for an unknown one lists the known.
  Result<std::shared_ptr<LoadedAdapter>> find(std::string_view name) const;
  // Frees slots whose adapter is neither named nor held by a request. Between batches.
  void collect(Runner& runner);

  std::vector<AdapterInfo> list() const;
  std::int64_t bytes() const;
  std::vector<std::string> notes() const;

 private:
  Result<std::shared_ptr<const Adapter>> read(const Model& model, const AdapterSource& source) const;
  std::shared_ptr<LoadedAdapter> make(const AdapterSource& source, std::shared_ptr<const Adapter> adapter, int slot);
  // Prepares the model for `plan` where it exceeds the present one, and attaches everything in slots anew.
  Status grow(Runner& runner, const AdapterPlan& plan);

  MoeGate gate_;
  SelectOptions select_;
  AdapterPlan plan_;
  std::map<std::string, std::shared_ptr<LoadedAdapter>, std::less<>> by_name_;
  std::vector<std::shared_ptr<LoadedAdapter>> slots_;  // null: free
  std::uint64_t next_version_ = 1;
};

}  // namespace cadre
