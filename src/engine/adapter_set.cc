#include "engine/adapter_set.h"

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "lora/adapter_reader.h"

namespace cadre {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool fits(const AdapterDemand& asked, const AdapterDemand& planned) {
  return !asked.any() || (asked.max_adapters <= planned.max_adapters && asked.max_rank <= planned.max_rank &&
                          (asked.projections & ~planned.projections) == 0 && (asked.layouts & ~planned.layouts) == 0);
}

// Names go into requests, metrics and paths.
Status check_name(const std::string& name) {
  const bool valid = !name.empty() && name.size() <= 256 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c > 0x20 && c != 0x7f && c != '"' && c != '\\';
  });
  if (valid && name != "base" && name != "all") return {};
  return error(Code::kInvalidArgument, "adapter name '", name,
               "', want 1 to 256 characters without spaces or quotes, other than 'base' and 'all'");
}

}  // namespace

AdapterSet::AdapterSet(const EngineOptions& options, MoeGate gate, SelectOptions select)
    : gate_(std::move(gate)),
      select_(std::move(select)),
      declared_rank_(options.max_lora_rank),
      slots_grow_(options.max_loras == 0),
      max_in_memory_(options.max_cpu_loras) {
  plan_.slots = options.max_loras;
  plan_.max_rank = options.max_lora_rank;
  if (options.loras_on_experts) plan_.expert_projections = kGate | kUp | kDown;
}

Result<std::shared_ptr<ReadAdapter>> AdapterSet::read(const Model& model, const AdapterSource& source,
                                                      const std::string& read_from) const {
  const Clock::time_point start = Clock::now();
  CADRE_TRY(check_name(source.name));
  CADRE_ASSIGN(const AdapterOptions options, parse_adapter_options(source.options));
  auto read = std::make_shared<ReadAdapter>();
  read->source = source;
  const std::string& dir = read_from.empty() ? source.dir : read_from;
  CADRE_ASSIGN(read->adapter, read_adapter(dir, source.name, model.adapter_targets(), options));
  read->templates = read_templates(dir);
  read->seconds = seconds_since(start);
  return read;
}

AdapterRef AdapterSet::make(ReadAdapter read) {
  auto loaded = std::make_shared<LoadedAdapter>();
  loaded->info = {.name = read.source.name,
                  .dir = read.source.dir,
                  .digest = read.adapter->digest,
                  .version = next_version_++,
                  .slot = -1,
                  .max_rank = read.adapter->report.max_rank,
                  .bytes = read.adapter->report.bytes,
                  .pinned = read.source.pinned,
                  .load_seconds = read.seconds};
  loaded->source = std::move(read.source);
  loaded->adapter = std::move(read.adapter);
  loaded->templates = std::move(read.templates);
  loaded->last_use = ++clock_;
  return loaded;
}

Status AdapterSet::prepare(Model& model, const std::vector<AdapterSource>& sources) {
  if (plan_.slots > 0 && max_in_memory_ > 0 && max_in_memory_ < plan_.slots) {
    return error(Code::kInvalidArgument, "max_cpu_loras is ", max_in_memory_, ", want at least max_loras, ",
                 plan_.slots, ": what is in a slot is in memory too");
  }
  for (const AdapterSource& source : sources) {
    if (by_name_.contains(source.name)) {
      return error(Code::kInvalidArgument, "adapter name '", source.name, "' is given twice, want different names");
    }
    CADRE_ASSIGN(const auto adapter, read(model, source));
    Model::add_needs(*adapter->adapter, &plan_.needs);
    all_.push_back(make(std::move(*adapter)));
    by_name_.emplace(source.name, all_.back());
  }
  if (plan_.slots == 0) plan_.slots = static_cast<int>(all_.size());
  slots_.resize(static_cast<std::size_t>(plan_.slots));
  const auto pinned = std::count_if(all_.begin(), all_.end(), [](const AdapterRef& a) { return a->info.pinned; });
  if (pinned > 0 && all_.size() > slots_.size() && pinned >= static_cast<std::ptrdiff_t>(slots_.size())) {
    return error(Code::kInvalidArgument, pinned, " adapters are pinned in ", slots_.size(), " slots, and ",
                 all_.size() - static_cast<std::size_t>(pinned),
                 " others need one in turn; pin fewer or raise --max-loras");
  }
  return model.prepare(gate_, select_, plan_);
}

Status AdapterSet::attach(Runner& runner) {
  for (const bool pinned : {true, false}) {
    for (const AdapterRef& adapter : all_) {
      if (adapter->info.pinned != pinned) continue;
      const auto free = std::find(slots_.begin(), slots_.end(), nullptr);
      if (free == slots_.end()) break;
      CADRE_TRY(put(runner, *adapter, static_cast<int>(free - slots_.begin())));
    }
  }
  shrink_memory();
  return {};
}

Status AdapterSet::put(Runner& runner, LoadedAdapter& adapter, int slot) {
  const Clock::time_point start = Clock::now();
  LoadedAdapter*& place = slots_[static_cast<std::size_t>(slot)];
  if (place != nullptr) take_out(runner, *place);
  CADRE_TRY(runner.model().attach(runner.stream(), slot, *adapter.adapter));
  place = &adapter;
  const std::lock_guard lock(mutex_);
  adapter.info.slot = slot;
  adapter.info.load_seconds += seconds_since(start);
  return {};
}

void AdapterSet::take_out(Runner& runner, LoadedAdapter& adapter) {
  if (adapter.info.slot < 0) return;
  runner.model().detach(runner.stream(), adapter.info.slot);
  slots_[static_cast<std::size_t>(adapter.info.slot)] = nullptr;
  const std::lock_guard lock(mutex_);
  adapter.info.slot = -1;
}

int AdapterSet::find_slot() const {
  int best = -1;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const LoadedAdapter* present = slots_[i];
    if (present == nullptr) return static_cast<int>(i);
    if (present->running > 0 || present->info.pinned) continue;
    if (best < 0 || present->last_use < slots_[static_cast<std::size_t>(best)]->last_use) best = static_cast<int>(i);
  }
  return best;
}

Status AdapterSet::grow(Runner& runner, const AdapterPlan& plan) {
  const std::vector<LayerSelection> asked = runner.model().requests(select_.base, plan);
  const std::vector<LayerSelection>& planned = runner.model().selections();
  const auto covered = [&](const LayerSelection& a) {
    return std::all_of(a.layers.begin(), a.layers.end(), [&](int layer) {
      return std::any_of(planned.begin(), planned.end(), [&](const LayerSelection& p) {
        return std::find(p.layers.begin(), p.layers.end(), layer) != p.layers.end() &&
               fits(a.deployment.adapters, p.deployment.adapters);
      });
    });
  };
  if (plan.slots <= runner.model().plan().slots && std::all_of(asked.begin(), asked.end(), covered)) return {};
  SelectOptions select = select_;
  if (const std::int64_t available = available_memory(); available > 0) select.memory_left = available;
  CADRE_ASSIGN(PreparedModel prepared, runner.model().make_prepared(gate_, select, plan));
  runner.model().exchange(prepared);
  const auto attach_all = [&]() -> Status {
    for (const LoadedAdapter* adapter : slots_) {
      if (adapter != nullptr) CADRE_TRY(runner.model().attach(runner.stream(), adapter->info.slot, *adapter->adapter));
    }
    return runner.resize();
  };
  Status status = attach_all();
  if (!status.ok()) runner.model().exchange(prepared);  // back to what was, adapters included
  return status;
}

Result<AdapterInfo> AdapterSet::load(Runner& runner, std::shared_ptr<ReadAdapter> read) {
  const std::string where = "adapter '" + read->source.name + "'";
  AdapterPlan plan = plan_;
  Model::add_needs(*read->adapter, &plan.needs);
  int slot = -1;  // then it waits in memory for its turn
  if (const auto free = std::find(slots_.begin(), slots_.end(), nullptr); free != slots_.end()) {
    slot = static_cast<int>(free - slots_.begin());
  } else if (slots_grow_) {
    slot = plan.slots++;
  }
  if (read->source.pinned && !slots_grow_) {
    const auto pinned = std::count_if(slots_.begin(), slots_.end(),
                                      [](const LoadedAdapter* a) { return a != nullptr && a->info.pinned; });
    if (pinned + 1 >= static_cast<std::ptrdiff_t>(slots_.size())) {
      return error(Code::kLimitExceeded, where, ": ", pinned, " of ", slots_.size(),
                   " slots hold pinned adapters, and the others need one; unload one of them or raise --max-loras");
    }
    if (slot < 0) slot = find_slot();
    if (slot < 0) {
      return error(Code::kConflict, where, ": running requests use all ", slots_.size(),
                   " slots, so it cannot be pinned now; try again when some have ended, or raise --max-loras");
    }
  }
  CADRE_TRY(grow(runner, plan).with_context(where));
  plan_ = plan;
  slots_.resize(static_cast<std::size_t>(plan_.slots));
  const AdapterRef loaded = make(std::move(*read));
  all_.push_back(loaded);
  if (slot >= 0) {
    if (Status status = put(runner, *loaded, slot); !status.ok()) {
      all_.pop_back();
      return status;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    by_name_[loaded->source.name] = loaded;  // a replaced version stays while requests hold it
  }
  shrink_memory();
  return loaded->info;
}

Status AdapterSet::unload(std::string_view name) {
  CADRE_TRY(find(name).status());
  const std::lock_guard lock(mutex_);
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) by_name_.erase(it);
  return {};
}

Result<AdapterRef> AdapterSet::find(std::string_view name) const {
  if (name.empty()) return AdapterRef();
  const std::lock_guard lock(mutex_);
  if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  std::string known;
  for (const auto& [n, loaded] : by_name_) known += (known.empty() ? "" : ", ") + n;
  return error(Code::kNotFound, "no adapter is named '", name, "'; loaded: ", known.empty() ? "none" : known);
}

Status AdapterSet::bring_into_memory(LoadedAdapter& adapter, Result<std::shared_ptr<ReadAdapter>> read) {
  if (adapter.adapter != nullptr) return {};
  if (!read.ok()) {
    return error(Code::kConflict, read.status().message(), "; it was loaded and is needed again: put it back, or ",
                 "load it again");
  }
  const std::shared_ptr<ReadAdapter>& again = *read;
  if (again->adapter->digest != adapter.info.digest) {
    return error(Code::kConflict, "adapter '", adapter.info.name,
                 "' changed on disk since it was loaded; load it again to use its new content");
  }
  adapter.adapter = again->adapter;
  {
    const std::lock_guard lock(mutex_);
    adapter.info.in_memory = true;
    adapter.info.load_seconds = again->seconds;
  }
  adapter.last_use = ++clock_;
  shrink_memory();
  return {};
}

int AdapterSet::in_memory() const {
  return static_cast<int>(std::count_if(all_.begin(), all_.end(), [](const auto& a) { return a->adapter != nullptr; }));
}

LoadedAdapter* AdapterSet::dispensable() const {
  LoadedAdapter* oldest = nullptr;
  for (const AdapterRef& adapter : all_) {
    if (adapter->adapter == nullptr) continue;
    const auto named = by_name_.find(adapter->info.name);
    // A replaced version cannot be read again: its folder holds the new one. Nor might one that requests hold, by the
    // time they run. Besides them, only all_ and by_name_ hold it.
    if (adapter->info.slot >= 0 || named == by_name_.end() || named->second != adapter || adapter.use_count() > 2) {
      continue;
    }
    if (oldest == nullptr || adapter->last_use < oldest->last_use) oldest = adapter.get();
  }
  return oldest;
}

void AdapterSet::shrink_memory() {
  while (max_in_memory_ > 0 && in_memory() > max_in_memory_) {
    LoadedAdapter* oldest = dispensable();
    if (oldest == nullptr) return;
    oldest->adapter = nullptr;
    const std::lock_guard lock(mutex_);
    oldest->info.in_memory = false;
  }
}

Result<bool> AdapterSet::acquire(Runner& runner, const AdapterRef& adapter) {
  if (adapter == nullptr) return true;
  if (adapter->info.slot < 0) {
    const int slot = find_slot();
    if (slot < 0) return false;
    if (on_disk(adapter)) CADRE_TRY(bring_into_memory(*adapter, read(runner.model(), adapter->source)));
    CADRE_TRY(put(runner, *adapter, slot));
    shrink_memory();
  }
  ++adapter->running;
  adapter->last_use = ++clock_;
  return true;
}

void AdapterSet::release(const AdapterRef& adapter) {
  if (adapter == nullptr) return;
  CADRE_CHECK(adapter->running > 0, "an adapter is released that nobody acquired");
  --adapter->running;
}

std::vector<std::uint64_t> AdapterSet::collect(Runner& runner) {
  std::vector<std::uint64_t> gone;
  std::erase_if(all_, [&](const AdapterRef& adapter) {
    const auto named = by_name_.find(adapter->info.name);
    if ((named != by_name_.end() && named->second == adapter) || adapter.use_count() > 1) return false;
    take_out(runner, *adapter);
    gone.push_back(adapter->info.version);
    return true;
  });
  return gone;
}

std::vector<AdapterInfo> AdapterSet::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> out;
  out.reserve(by_name_.size());
  for (const auto& [name, loaded] : by_name_) out.push_back(loaded->info);
  return out;
}

AdapterInfo AdapterSet::info(const LoadedAdapter& adapter) const {
  const std::lock_guard lock(mutex_);
  return adapter.info;
}

int AdapterSet::slots_used() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(), [](const auto* a) { return a != nullptr; }));
}

std::int64_t AdapterSet::bytes() const {
  std::int64_t total = 0;
  for (const AdapterRef& adapter : all_) total += adapter->adapter == nullptr ? 0 : adapter->info.bytes;
  return total;
}

std::vector<std::string> AdapterSet::notes() const {
  std::vector<std::string> out;
  for (const AdapterRef& adapter : all_) {
    if (adapter->adapter == nullptr) continue;
    const std::string prefix = "adapter '" + adapter->info.name + "': ";
    if (declared_rank_ > 0 && adapter->info.max_rank > declared_rank_) {
      out.push_back(prefix + "its rank " + std::to_string(adapter->info.max_rank) + " is above --max-lora-rank " +
                    std::to_string(declared_rank_) + "; the MoE layers are prepared for it all the same");
    }
    for (const std::string& note : adapter->adapter->report.notes) out.push_back(prefix + note);
  }
  return out;
}

}  // namespace cadre
