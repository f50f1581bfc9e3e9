// Adapters that come, change and go while requests run.
#pragma once

#include <map>
#include <mutex>

#include "server/access/adapter_root.h"
#include "server/service/context.h"

namespace cadre::server {

// The adapters of --adapter-dir, and those loaded by request. One call at a time; calls may take as long as reading an
// adapter takes.
class AdapterRoom {
 public:
  explicit AdapterRoom(Context& context) : context_(context) {}

  struct Change {
    std::vector<std::string> loaded, replaced, unloaded;
    std::vector<std::string> failed;  // "name: why"
  };
  // Brings what is loaded from the folder up to what the folder holds: new ones come, changed ones are replaced, those
  // that are gone go. Adapters that were not loaded from there stay.
  Change rescan();
  Result<AdapterInfo> load(const LoadAdapterRequest& request);
  Status unload(const std::string& name);

 private:
  Result<AdapterInfo> bring(const std::string& name, const std::string& options, bool pinned, AdapterFolder folder);

  Context& context_;
  std::mutex mutex_;
  std::map<std::string, AdapterFolder> from_root_;  // as they were when read
};

void load_adapter(Context& context, AdapterRoom& room, Exchange exchange);
void unload_adapter(Context& context, AdapterRoom& room, Exchange exchange);
void rescan_adapters(Context& context, AdapterRoom& room, Exchange exchange);

}  // namespace cadre::server
