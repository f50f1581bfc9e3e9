// AdapterSet: the adapters of an engine, where their content is, and the plan of the MoE layers they need.
//
// Three tiers: a slot (usable by a batch), memory (read and checked), disk (known by name, read again when used). The
// least recently used goes down first; pinned adapters keep their slot.
#pragma once

#include <map>
#include <mutex>

#include "engine/loaded_adapter.h"
#include "engine/runner.h"

namespace cadre {

class AdapterSet {
 public:
  AdapterSet(const EngineOptions& options, MoeGate gate, SelectOptions select);

  // Reads the adapters of the options and prepares the model for all of them.
  Status prepare(Model& model, const std::vector<AdapterSource>& sources);
  // Puts what prepare read into slots, as far as they go; needs the runner.
  Status attach(Runner& runner);

  // Any thread. `model` must be prepared.
  Result<std::shared_ptr<ReadAdapter>> read(const Model& model, const AdapterSource& source,
                                            const std::string& read_from = {}) const;
  Result<AdapterInfo> load(Runner& runner, std::shared_ptr<ReadAdapter> read);
  Status unload(std::string_view name);
  // Null for the base model (an empty name); an error for an unknown one lists the known. Any thread.
  Result<AdapterRef> find(std::string_view name) const;
  std::vector<AdapterInfo> list() const;                 // any thread
  AdapterInfo info(const LoadedAdapter& adapter) const;  // any thread

  // Whether the adapter has to be read before it can have a slot; then `read` gives what bring_into_memory takes.
  bool on_disk(const AdapterRef& adapter) const { return adapter != nullptr && adapter->adapter == nullptr; }
  // Whether one more in memory keeps within max_cpu_loras.
  bool has_memory() const { return max_in_memory_ == 0 || in_memory() < max_in_memory_ || dispensable() != nullptr; }
  Status bring_into_memory(LoadedAdapter& adapter, Result<std::shared_ptr<ReadAdapter>> read);
  // Before a sequence of the adapter runs: brings it into a slot, reading it where it is on disk, and keeps it there
  // until as many calls of release. False where every slot is kept by others. Between batches, as the rest.
  bool has_room(const AdapterRef& adapter) const {
    return adapter == nullptr || adapter->info.slot >= 0 || find_slot() >= 0;
  }
  Result<bool> acquire(Runner& runner, const AdapterRef& adapter);
  void release(const AdapterRef& adapter);
  // Drops versions that are neither named nor held by a request. Returns their numbers.
  std::vector<std::uint64_t> collect(Runner& runner);

  int slots() const { return static_cast<int>(slots_.size()); }
  int slots_used() const;
  std::int64_t bytes() const;  // of content in memory
  std::vector<std::string> notes() const;

 private:
  AdapterRef make(ReadAdapter read);
  // Prepares the model for `plan` where it exceeds the present one, and attaches everything in slots anew.
  Status grow(Runner& runner, const AdapterPlan& plan);
  Status put(Runner& runner, LoadedAdapter& adapter, int slot);
  void take_out(Runner& runner, LoadedAdapter& adapter);
  // A free slot, or that of the adapter that may best go, which is not taken out yet; -1 where all are kept.
  int find_slot() const;
  int in_memory() const;
  LoadedAdapter* dispensable() const;  // whose content goes first; null where all must stay
  void shrink_memory();

  MoeGate gate_;
  SelectOptions select_;
  AdapterPlan plan_;
  int declared_rank_;  // --max-lora-rank; 0: none
  bool slots_grow_;    // no number of slots was declared: each adapter gets one
  int max_in_memory_;  // 0: all
  std::vector<LoadedAdapter*> slots_;
  std::vector<AdapterRef> all_;  // named, or still held by requests
  std::uint64_t next_version_ = 1, clock_ = 0;
  mutable std::mutex mutex_;  // by_name_, and the fields of adapters that other threads read
  std::map<std::string, AdapterRef, std::less<>> by_name_;
};

}  // namespace cadre
