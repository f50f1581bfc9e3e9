#include "engine/adapter_set.h"

#include <algorithm>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "lora/adapter_reader.h"

namespace cadre {
namespace {

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

Result<std::shared_ptr<const Adapter>> AdapterSet::read(const Model& model, const AdapterSource& source) const {
  CADRE_TRY(check_name(source.name));
  CADRE_ASSIGN(const AdapterOptions options, parse_adapter_options(source.options));
  return read_adapter(source.dir, source.name, model.adapter_targets(), options);
}

std::shared_ptr<LoadedAdapter> AdapterSet::make(const AdapterSource& source, std::shared_ptr<const Adapter> adapter,
                                                int slot) {
  auto loaded = std::make_shared<LoadedAdapter>();
  loaded->info = {.name = source.name,
                  .dir = source.dir,
                  .digest = adapter->digest,
                  .version = next_version_++,
                  .slot = slot,
                  .max_rank = adapter->report.max_rank,
                  .bytes = adapter->report.bytes};
  loaded->adapter = std::move(adapter);
  return loaded;
}

Status AdapterSet::prepare(Model& model, const std::vector<AdapterSource>& sources) {
  for (const AdapterSource& source : sources) {
    if (by_name_.contains(source.name)) {
      return error(Code::kInvalidArgument, "adapter name '", source.name, "' is given twice, want different names");
    }
    CADRE_ASSIGN(auto adapter, read(model, source));
    plan_.known.push_back(adapter);
    slots_.push_back(make(source, std::move(adapter), static_cast<int>(slots_.size())));
    by_name_.emplace(source.name, slots_.back());
  }
  if (plan_.slots > 0 && static_cast<int>(slots_.size()) > plan_.slots) {
    return error(Code::kLimitExceeded, slots_.size(), " adapters are given, and --max-loras allows ", plan_.slots);
  }
  plan_.slots = std::max(plan_.slots, static_cast<int>(slots_.size()));
  slots_.resize(static_cast<std::size_t>(plan_.slots));
  return model.prepare(gate_, select_, plan_);
}

Status AdapterSet::attach(Runner& runner) {
  for (const auto& loaded : slots_) {
    if (loaded != nullptr) CADRE_TRY(runner.model().attach(runner.stream(), loaded->info.slot, *loaded->adapter));
  }
  return {};
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
  Status status = attach(runner);
  if (status.ok()) status = runner.resize();
  if (!status.ok()) runner.model().exchange(prepared);  // back to what was, adapters included
  return status;
}

Result<AdapterInfo> AdapterSet::load(Runner& runner, const AdapterSource& source) {
  CADRE_ASSIGN(auto adapter, read(runner.model(), source));
  collect(runner);
  const auto free = std::find(slots_.begin(), slots_.end(), nullptr);
  const std::size_t slot = static_cast<std::size_t>(free - slots_.begin());
  AdapterPlan plan = plan_;
  plan.known.push_back(adapter);
  plan.slots = std::max(plan.slots, static_cast<int>(slot) + 1);
  CADRE_TRY(grow(runner, plan).with_context("adapter '" + source.name + "'"));
  const auto loaded = make(source, std::move(adapter), static_cast<int>(slot));
  CADRE_TRY(runner.model().attach(runner.stream(), loaded->info.slot, *loaded->adapter));
  plan_ = plan;
  slots_.resize(std::max(slots_.size(), static_cast<std::size_t>(plan_.slots)));
  slots_[slot] = loaded;
  by_name_[source.name] = loaded;  // a replaced version stays in its slot while requests hold it
  collect(runner);
  return loaded->info;
}

Status AdapterSet::unload(std::string_view name) {
  CADRE_TRY(find(name).status());
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) by_name_.erase(it);
  return {};
}

Result<std::shared_ptr<LoadedAdapter>> AdapterSet::find(std::string_view name) const {
  if (name.empty()) return std::shared_ptr<LoadedAdapter>();
  if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  std::string known;
  for (const auto& [n, loaded] : by_name_) known += (known.empty() ? "" : ", ") + n;
  return error(Code::kNotFound, "no adapter is named '", name, "'; loaded: ", known.empty() ? "none" : known);
}

void AdapterSet::collect(Runner& runner) {
  for (auto& loaded : slots_) {
    if (loaded == nullptr) continue;
    const auto named = by_name_.find(loaded->info.name);
    const bool current = named != by_name_.end() && named->second == loaded;
    if (current || loaded.use_count() > 1) continue;
    runner.model().detach(runner.stream(), loaded->info.slot);
    std::erase(plan_.known, loaded->adapter);
    loaded = nullptr;
  }
}

std::vector<AdapterInfo> AdapterSet::list() const {
  std::vector<AdapterInfo> out;
  out.reserve(by_name_.size());
  for (const auto& [name, loaded] : by_name_) out.push_back(loaded->info);
  return out;
}

std::int64_t AdapterSet::bytes() const {
  std::int64_t total = 0;
  for (const auto& loaded : slots_) total += loaded == nullptr ? 0 : loaded->info.bytes;
  return total;
}

std::vector<std::string> AdapterSet::notes() const {
  std::vector<std::string> out;
  for (const auto& [name, loaded] : by_name_) {
    const std::string prefix = "adapter '" + name + "': ";
    for (const std::string& note : loaded->adapter->report.notes) out.push_back(prefix + note);
  }
  return out;
}

}  // namespace cadre
