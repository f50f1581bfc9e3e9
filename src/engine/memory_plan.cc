#include "engine/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/result.h"
#include "base/size_text.h"
#include "engine/state_pool.h"

namespace cadre {
namespace {

constexpr std::int64_t kDefaultCache = std::int64_t{4} << 30;

std::int64_t read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : 0;  // "max" is no number: no limit
}

}  // namespace

std::int64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  std::int64_t available = 0;
  while (std::getline(meminfo, line)) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  if (const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max"); limit > 0) {
    const std::int64_t left = std::max<std::int64_t>(limit - read_number("/sys/fs/cgroup/memory.current"), 0);
    available = available == 0 ? left : std::min(available, left);
  }
  return available;
}

Result<MemoryPlan> plan_cache(const EngineOptions& o, const std::vector<StateSpec>& specs, std::int64_t model_context) {
  MemoryPlan plan;
  const std::int64_t budget = o.kv_cache_memory > 0 ? o.kv_cache_memory : kDefaultCache;
  const std::int64_t page = StatePool::page_bytes(specs), slot = StatePool::slot_bytes(specs);
  // Snapshots take a quarter at most: pages are worth more.
  if (o.enable_prefix_caching && slot > 0) {
    plan.snapshots = static_cast<std::int32_t>(std::min<std::int64_t>(budget / 4 / slot, 4 * o.max_num_seqs));
  }
  plan.prefix_caching = o.enable_prefix_caching && (slot == 0 || plan.snapshots > 0);
  const std::int64_t slots = (o.max_num_seqs + plan.snapshots) * slot;
  plan.max_model_len = o.max_model_len > 0 ? o.max_model_len : model_context;
  const std::int64_t for_one = (plan.max_model_len + kPageSize - 1) / kPageSize;
  // A model without attention needs no pages; the block table still counts them.
  plan.pages = page == 0 ? for_one * o.max_num_seqs
                         : std::min(for_one * o.max_num_seqs, std::max<std::int64_t>(budget - slots, 0) / page);
  if (plan.pages < for_one && plan.snapshots > 0) {
    // Snapshots are worth less than room for a sequence.
    EngineOptions without = o;
    without.enable_prefix_caching = false;
    return plan_cache(without, specs, model_context);
  }
  if (plan.pages < for_one) {
    const std::int64_t fits = plan.pages * kPageSize;
    if (o.max_model_len > 0 || fits < kPageSize) {
      return error(Code::kOutOfMemory, "one sequence of max_model_len ", plan.max_model_len, " tokens needs ",
                   size_text(for_one * page + slots), " of cache, and ", size_text(budget),
                   " are allowed; raise kv_cache_memory (--kv-cache-memory) or lower max_model_len (--max-model-len)",
                   fits > 0 ? " to " : "", fits > 0 ? std::to_string(fits) : "",
                   slots > 0 ? " or max_num_seqs (--max-num-seqs), each of which takes " : "",
                   slots > 0 ? size_text(slot) : "");
    }
    std::ostringstream note;
    note << "max_model_len is lowered from the model's " << plan.max_model_len << " to " << fits
         << " tokens, which fit in " << size_text(budget)
         << " of cache; --max-model-len and --kv-cache-memory set both";
    plan.note = std::move(note).str();
    plan.max_model_len = fits;
  }
  plan.cache = plan.pages * page + slots;
  return plan;
}

Status check_memory(const MemoryPlan& plan, std::int64_t limit) {
  if (limit <= 0 || plan.total() <= limit) return {};
  // Without room for the weights nothing else helps.
  const char* advice = plan.weights + plan.adapters > limit
                           ? "use a machine with more memory"
                           : "lower --max-model-len, --kv-cache-memory or --max-num-seqs, or use a machine with more "
                             "memory";
  return error(Code::kOutOfMemory, "the model needs ", size_text(plan.total()), " (weights ", size_text(plan.weights),
               ", adapters ", size_text(plan.adapters), ", cache ", size_text(plan.cache), ", workspace ",
               size_text(plan.workspace), "), and ", size_text(limit), " are available; ", advice);
}

}  // namespace cadre
