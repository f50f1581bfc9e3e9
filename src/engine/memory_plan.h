// What an engine will need, foreseen before it is allocated.
#pragma once

#include <cadre/engine.h>

#include "model/network.h"

namespace cadre {

// Memory this process can still take: the machine's free and reclaimable memory, or what its cgroup allows, if less.
// 0 where neither can be read.
std::int64_t available_memory();

struct MemoryPlan {
  std::int64_t weights = 0;  // of the checkpoint, mapped
  std::int64_t adapters = 0;
  std::int64_t cache = 0;      // pages and slots
  std::int64_t workspace = 0;  // scratch memory of one batch
  std::int64_t pages = 0;
  std::int32_t snapshots = 0;   // of recurrent state, for the prefix cache
  bool prefix_caching = false;  // asked for, and of use: recurrent layers start from a snapshot only
  std::int64_t max_model_len = 0;
  std::string note;  // a limit that was lowered to fit
  std::int64_t total() const { return weights + adapters + cache + workspace; }
};

// Pages for max_num_seqs sequences of max_model_len tokens, as far as kv_cache_memory goes. kOutOfMemory where not even
// one sequence of a max_model_len that was asked for fits.
Result<MemoryPlan> plan_cache(const EngineOptions& options, const std::vector<StateSpec>& specs,
                              std::int64_t model_context);

// kOutOfMemory, naming each part, where the total is above the limit.
Status check_memory(const MemoryPlan& plan, std::int64_t limit);

}  // namespace cadre
