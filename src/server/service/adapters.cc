#include "server/service/adapters.h"

#include <algorithm>

#include "base/result.h"
#include "io/json.h"
#include "server/access/names.h"

namespace cadre::server {
namespace {

// Messages of reading name the folder by the descriptor it was opened with; people know it by its name.
Status renamed(Status status, const std::string& from, const std::string& to) {
  std::string text = status.message();
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return {status.code(), std::move(text)};
}

}  // namespace

Result<AdapterInfo> AdapterRoom::bring(const std::string& name, const std::string& options, bool pinned,
                                       AdapterFolder folder) {
  const double start = steady_seconds();
  if (!is_name(name)) {
    return error(Code::kInvalidArgument, "adapter name '", shown(name), "', want 1 to ", kMaxName,
                 " of A-Z a-z 0-9 . _ -, not beginning with a dot");
  }
  const std::vector<std::string>& names = context_.options.served_model_names;
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return error(Code::kConflict, "'", name, "' is the base model's name, want another");
  }
  const std::vector<AdapterInfo> present = context_.engine().adapters();
  const bool known = std::any_of(present.begin(), present.end(), [&](const auto& info) { return info.name == name; });
  if (!known && static_cast<int>(present.size()) >= context_.options.max_adapters) {
    return error(Code::kLimitExceeded, present.size(), " adapters are loaded, and --max-adapters allows ",
                 context_.options.max_adapters, "; unload one first");
  }
  const AdapterSource source{.name = name, .dir = folder.dir(), .options = options, .pinned = pinned};
  Result<std::shared_ptr<ReadAdapter>> read = context_.engine().read_adapter(source, folder.open_dir());
  if (!read.ok()) return renamed(std::move(read).status(), folder.open_dir(), folder.name());
  CADRE_TRY(folder.unchanged());
  Result<AdapterInfo> info = context_.loop->call([&](Engine& engine) { return engine.load_adapter(*std::move(read)); });
  if (!info.ok()) return info;
  folder.close();  // a descriptor for each adapter would be many
  from_root_.erase(name);
  from_root_.emplace(name, std::move(folder));
  const double seconds = steady_seconds() - start;
  context_.metrics->adapter_loaded(seconds);
  context_.log->write(LogLevel::kInfo, known ? "adapter replaced" : "adapter loaded",
                      {{"adapter", name},
                       {"version", info->version},
                       {"digest", info->digest},
                       {"rank", info->max_rank},
                       {"bytes", info->bytes},
                       {"slot", info->slot},
                       {"ms", seconds * 1e3}});
  return info;
}

Result<AdapterInfo> AdapterRoom::load(const LoadAdapterRequest& request) {
  const std::lock_guard lock(mutex_);
  if (!context_.adapter_root) {
    return error(Code::kUnsupported, "adapters can only be loaded from a folder that the server was given; start it ",
                 "with --adapter-dir");
  }
  if (!request.replace) {
    for (const AdapterInfo& info : context_.engine().adapters()) {
      if (info.name == request.name) {
        return error(Code::kConflict, "adapter '", request.name, "' is already loaded; load_inplace replaces it");
      }
    }
  }
  CADRE_ASSIGN(AdapterFolder folder, context_.adapter_root->resolve(request.path));
  return bring(request.name, request.options, request.pinned, std::move(folder));
}

Status AdapterRoom::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  CADRE_TRY(context_.loop->call([&](Engine& engine) { return engine.unload_adapter(name); }));
  from_root_.erase(name);
  context_.log->write(LogLevel::kInfo, "adapter unloaded", {{"adapter", name}});
  return {};
}

AdapterRoom::Change AdapterRoom::rescan() {
  const std::lock_guard lock(mutex_);
  Change change;
  if (!context_.adapter_root) {
    change.failed.emplace_back("no --adapter-dir was given");
    return change;
  }
  Result<AdapterRoot::Scan> scan = context_.adapter_root->scan();
  if (!scan.ok()) {
    change.failed.push_back(scan.status().message());
    return change;
  }
  change.failed = scan->notes;
  const std::vector<AdapterInfo> present = context_.engine().adapters();
  std::vector<std::string> found;
  for (const AdapterRoot::Found& entry : scan->adapters) {
    found.push_back(entry.name);
    const auto known = from_root_.find(entry.name);
    if (known != from_root_.end() && known->second.unchanged().ok()) continue;
    const bool named =
        std::any_of(present.begin(), present.end(), [&](const auto& info) { return info.name == entry.name; });
    const bool same = std::any_of(present.begin(), present.end(),
                                  [&](const auto& info) { return info.name == entry.name && info.dir == entry.dir; });
    if (same && known == from_root_.end()) continue;  // given at the start, too
    if (named && known == from_root_.end()) {
      change.failed.push_back(entry.name + ": an adapter of that name was given at the start; it stays");
      continue;
    }
    Result<AdapterFolder> folder = context_.adapter_root->resolve(entry.name);
    Status status = folder.ok() ? bring(entry.name, "", false, *std::move(folder)).status() : folder.status();
    if (status.ok()) {
      (named ? change.replaced : change.loaded).push_back(entry.name);
    } else {
      context_.metrics->adapter_load_failed();
      change.failed.push_back(entry.name + ": " + status.message());
    }
  }
  std::vector<std::string> gone;
  for (const auto& [name, folder] : from_root_) {
    // One that was loaded under another name than its folder's goes when that folder does.
    if (std::find(found.begin(), found.end(), folder.name()) == found.end() &&
        std::find(found.begin(), found.end(), name) == found.end() && !folder.unchanged().ok()) {
      gone.push_back(name);
    }
  }
  for (const std::string& name : gone) {
    if (context_.loop->call([&](Engine& engine) { return engine.unload_adapter(name); }).ok()) {
      change.unloaded.push_back(name);
    }
    from_root_.erase(name);
  }
  for (const std::string& failure : change.failed) {
    context_.log->write(LogLevel::kWarn, "adapter passed over", {{"why", failure}});
  }
  context_.log->write(LogLevel::kInfo, "adapter folder read",
                      {{"loaded", change.loaded.size()},
                       {"replaced", change.replaced.size()},
                       {"unloaded", change.unloaded.size()},
                       {"failed", change.failed.size()}});
  return change;
}

namespace {

bool refuse_others(Context& context, Exchange& exchange) {
  const std::optional<Refusal> refusal = context.access->refuse_admin(exchange.caller);
  if (refusal) refuse(context, exchange, *refusal);
  return refusal.has_value();
}

Json names_json(const std::vector<std::string>& names) { return Json::array(names); }

}  // namespace

void load_adapter(Context& context, AdapterRoom& room, Exchange exchange) {
  if (refuse_others(context, exchange)) return;
  const ApiResult<LoadAdapterRequest> request = parse_load_adapter_request(exchange.request.body);
  if (!request.ok()) return refuse(context, exchange, request.error(), "invalid");
  const Result<AdapterInfo> info = room.load(*request);
  if (!info.ok()) {
    context.metrics->adapter_load_failed();
    return refuse(context, exchange, to_api_error(exchange, info.status()), "adapter");
  }
  answer(context, exchange, 200,
         Json::object({{"message", "Success: LoRA adapter '" + info->name + "' added successfully."},
                       {"name", info->name},
                       {"version", info->version},
                       {"digest", info->digest},
                       {"max_rank", info->max_rank},
                       {"bytes", info->bytes},
                       {"slot", info->slot},
                       {"load_seconds", info->load_seconds}})
             .dump());
}

void unload_adapter(Context& context, AdapterRoom& room, Exchange exchange) {
  if (refuse_others(context, exchange)) return;
  const ApiResult<UnloadAdapterRequest> request = parse_unload_adapter_request(exchange.request.body);
  if (!request.ok()) return refuse(context, exchange, request.error(), "invalid");
  const Status status = room.unload(request->name);
  if (!status.ok()) return refuse(context, exchange, to_api_error(exchange, status), "adapter");
  answer(context, exchange, 200,
         Json::object({{"message", "Success: LoRA adapter '" + request->name + "' removed successfully."}}).dump());
}

void rescan_adapters(Context& context, AdapterRoom& room, Exchange exchange) {
  if (refuse_others(context, exchange)) return;
  const AdapterRoom::Change change = room.rescan();
  answer(context, exchange, 200,
         Json::object({{"loaded", names_json(change.loaded)},
                       {"replaced", names_json(change.replaced)},
                       {"unloaded", names_json(change.unloaded)},
                       {"failed", names_json(change.failed)}})
             .dump());
}

}  // namespace cadre::server
