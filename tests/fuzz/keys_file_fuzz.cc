// Any bytes as a keys file: refused with a message that names the file and repeats no hash, or entries that are written
// and read back as the same, and make a table that lets in no one who has no key.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <variant>

#include "server/access/access.h"
#include "server/access/names.h"

namespace {

using namespace cadre::server;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const cadre::Result<std::vector<KeyEntry>> keys = parse_keys(text, "keys.json");
  if (!keys.ok()) {
    const std::string& message = keys.status().message();
    require(message.starts_with("keys.json"));
    require(message.size() < 2'000);
    return 0;
  }
  std::string again = "{\"keys\": [";
  for (const KeyEntry& entry : *keys) {
    require(is_name(entry.grant.tenant) && !entry.grant.admin);
    if (again.back() != '[') again += ',';
    again += to_json(entry);
  }
  const cadre::Result<std::vector<KeyEntry>> read = parse_keys(again + "]}", "again");
  require(read.ok() && *read == *keys);

  const auto table = AccessTable::make({"user"}, "root", *keys);
  require(table.ok() && !(*table)->open());
  require(std::holds_alternative<Refusal>((*table)->identify(std::nullopt, 0)));
  require(std::holds_alternative<Refusal>((*table)->identify("Bearer nobody's", 0)));
  const auto root = (*table)->identify("Bearer root", 0);
  require(std::holds_alternative<Caller>(root) && std::get<Caller>(root).is_admin());
  for (const KeyEntry& entry : *keys) {
    const Caller caller{std::make_shared<const Grant>(entry.grant)};
    for (const std::string& pattern : entry.grant.adapters) {
      // A pattern without stars matches itself.
      if (pattern.find('*') == pattern.npos) require(may_use(caller, pattern));
    }
    require(may_use(caller, "") == entry.grant.base);
  }
  return 0;
}
