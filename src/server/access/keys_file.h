// The file of keys, `--keys FILE`: one JSON object,
//
//   {"keys": [
//     {"tenant": "team-a",               whose key it is; several keys may name one tenant (A-Z a-z 0-9 . _ -)
//      "sha256": "9f86d0...",            of the key, 64 hexadecimal digits; the key itself is nowhere
//      "adapters": ["team-a-*"],         names it may use, with * and ?; none where absent
//      "base": true,                     whether it may use the base model; true where absent
//      "metrics": false,                 whether it may read /metrics, which speaks of all tenants; false where absent
//      "requests_per_minute": 600,       limits of the tenant, shared by its keys, which must agree on them;
//      "tokens_per_minute": 100000,        absent: none
//      "max_concurrency": 8,
//      "priority": 0,                    -1000 to 1000, lower goes first
//      "expires": "2027-01-31T00:00:00Z",  from then on it is no key any more; also "2027-01-31"
//      "note": "for people"}
//   ]}
//
// Fields that are not listed are refused by name, so that a misspelt limit is not silently none.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/key_hash.h"

namespace cadre::server {

struct TenantLimits {
  std::int64_t requests_per_minute = 0;  // 0: no limit, also below
  std::int64_t tokens_per_minute = 0;
  std::int64_t max_concurrency = 0;
  bool operator==(const TenantLimits&) const = default;
};

// What a key may do.
struct Grant {
  std::string tenant;                 // empty: whoever asks, on a server without keys
  std::vector<std::string> adapters;  // patterns
  bool base = true;
  bool metrics = false;
  bool admin = false;
  TenantLimits limits;
  int priority = 0;
  std::optional<std::int64_t> expires;  // seconds since 1970
  bool operator==(const Grant&) const = default;
};

struct KeyEntry {
  KeyHash hash{};
  Grant grant;
  std::string note;
  bool operator==(const KeyEntry&) const = default;
};

// `source` names the text in messages. They never hold a hash or the text where one should be.
Result<std::vector<KeyEntry>> parse_keys(std::string_view text, std::string_view source);
// Also refuses a file that others may read or change, as ssh does with its keys: whoever can write it makes keys. The
// group may read it, which is how secrets reach a container.
Result<std::vector<KeyEntry>> read_keys_file(const std::string& path);

// One entry as it stands in the file.
std::string to_json(const KeyEntry& entry);
// A new random key with its entry; the key is to be shown once and kept by no one here.
struct NewKey {
  std::string key;
  KeyEntry entry;
};
Result<NewKey> new_key(Grant grant, std::string note = "");

// "2027-01-31" or "2027-01-31T12:00:00Z" in seconds since 1970.
Result<std::int64_t> parse_time(std::string_view text);

}  // namespace cadre::server
