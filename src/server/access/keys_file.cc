#include "server/access/keys_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "base/nearest.h"
#include "base/result.h"
#include "io/json.h"
#include "server/access/names.h"

namespace cadre::server {
namespace {

constexpr std::size_t kMaxBytes = 8u << 20;
constexpr std::size_t kMaxKeys = 10'000;  // each request's key is compared with all of them: some 100 us
constexpr std::size_t kMaxPatterns = 1'000;
constexpr std::int64_t kMaxRate = 1'000'000'000'000;

const std::vector<std::string> kFields{
    "tenant",   "sha256",  "adapters",          "base", "metrics",        "requests_per_minute",
    "priority", "expires", "tokens_per_minute", "note", "max_concurrency"};

Status check_fields(const Json& object, std::string_view what, const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return error(Code::kInvalidFile, what, ": unknown field '", shown(key), "'", nearest_hint(key, known));
    }
  }
  return {};
}

Status check_grant(const Grant& grant) {
  if (!is_name(grant.tenant)) {
    return error(Code::kInvalidFile, "tenant '", shown(grant.tenant), "' is no name, want 1 to ", kMaxName,
                 " of A-Z a-z 0-9 . _ - and no dot first");
  }
  if (grant.tenant == "admin" || grant.tenant == "default") {
    return error(Code::kInvalidFile, "tenant '", grant.tenant,
                 "' is what cadre calls the keys of its command line, take another name");
  }
  if (grant.adapters.size() > kMaxPatterns) {
    return error(Code::kInvalidFile, "has ", grant.adapters.size(), " adapters, want at most ", kMaxPatterns,
                 ": use patterns");
  }
  for (const std::string& pattern : grant.adapters) {
    if (!is_pattern(pattern)) {
      return error(Code::kInvalidFile, "adapter '", shown(pattern), "' is no name or pattern, want 1 to ", kMaxName,
                   " of A-Z a-z 0-9 . _ - * ?");
    }
  }
  const TenantLimits& limits = grant.limits;
  for (const std::int64_t limit : {limits.requests_per_minute, limits.tokens_per_minute, limits.max_concurrency}) {
    if (limit < 0 || limit > kMaxRate) return error(Code::kInvalidFile, "a limit of ", limit, " is out of range");
  }
  if (grant.priority < -1000 || grant.priority > 1000) {
    return error(Code::kInvalidFile, "priority is ", grant.priority, ", want -1000 to 1000");
  }
  return {};
}

// A limit that is 0 would be read as "none" by one person and as "nothing" by another.
Result<std::int64_t> get_limit(const Json& object, std::string_view key) {
  return object.get_int_or(key, 0, object.has(key) ? 1 : 0, kMaxRate);
}

Result<KeyEntry> parse_entry(const Json& object) {
  KeyEntry entry;
  Grant& grant = entry.grant;
  CADRE_ASSIGN(grant.tenant, object.get_string("tenant"));
  const Json* hash = object.find("sha256");
  if (hash == nullptr) return error(Code::kInvalidFile, "field 'sha256' is missing; `cadre keys new` makes an entry");
  if (!hash->is_string()) return error(Code::kInvalidFile, "field 'sha256' is not a string");
  CADRE_ASSIGN(const std::string hex, hash->as_string("sha256"));
  CADRE_ASSIGN(entry.hash, parse_hash(hex).with_context("field 'sha256'"));
  if (object.has("adapters")) {
    CADRE_ASSIGN(grant.adapters, object.get_string_list("adapters"));
  }
  CADRE_ASSIGN(grant.base, object.get_bool_or("base", true));
  CADRE_ASSIGN(grant.metrics, object.get_bool_or("metrics", false));
  CADRE_ASSIGN(grant.limits.requests_per_minute, get_limit(object, "requests_per_minute"));
  CADRE_ASSIGN(grant.limits.tokens_per_minute, get_limit(object, "tokens_per_minute"));
  CADRE_ASSIGN(grant.limits.max_concurrency, get_limit(object, "max_concurrency"));
  CADRE_ASSIGN(const std::int64_t priority, object.get_int_or("priority", 0, -1000, 1000));
  grant.priority = static_cast<int>(priority);
  if (object.has("expires")) {
    CADRE_ASSIGN(const std::string text, object.get_string("expires"));
    CADRE_ASSIGN(grant.expires, parse_time(text).with_context("field 'expires'"));
  }
  CADRE_ASSIGN(entry.note, object.get_string_or("note", ""));
  CADRE_TRY(check_grant(grant));
  return entry;
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string time_text(std::int64_t seconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::array<char, 80> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text.data();
}

}  // namespace

Result<std::int64_t> parse_time(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  const auto wrong = [&] {
    return error(Code::kInvalidFile, "'", shown(text), "' is no time, want 2027-01-31 or 2027-01-31T12:00:00Z");
  };
  if (text.size() != 10 && text.size() != kForm.size()) return wrong();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return wrong();
  }
  const auto number = [&](std::size_t at, std::size_t size) {
    int value = 0;
    for (std::size_t i = at; i < at + size && i < text.size(); ++i) value = value * 10 + (text[i] - '0');
    return value;
  };
  const bool with_clock = text.size() > 10;
  const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  const int hour = with_clock ? number(11, 2) : 0;
  const int minute = with_clock ? number(14, 2) : 0, second = with_clock ? number(17, 2) : 0;
  if (!date.ok() || hour > 23 || minute > 59 || second > 59) return wrong();
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86'400 + hour * 3'600 + minute * 60 + second;
}

Result<std::vector<KeyEntry>> parse_keys(std::string_view text, std::string_view source) {
  JsonParseOptions options;
  options.max_bytes = kMaxBytes;
  options.max_depth = 8;
  options.max_values = 1'000'000;
  options.duplicates = JsonParseOptions::Duplicates::kRefuse;
  options.python_numbers = false;
  CADRE_ASSIGN(const Json json, Json::parse(text, source, options));
  if (!json.is_object()) return error(Code::kInvalidFile, source, ": is no object, want {\"keys\": [...]}");
  CADRE_TRY(check_fields(json, source, {"keys"}));
  const Json* list = json.find("keys");
  if (list == nullptr || !list->is_array()) {
    return error(Code::kInvalidFile, source, ": has no list, want {\"keys\": [...]}");
  }
  if (list->items().size() > kMaxKeys) {
    return error(Code::kLimitExceeded, source, ": has ", list->items().size(), " keys, want at most ", kMaxKeys);
  }
  std::vector<KeyEntry> entries;
  std::map<KeyHash, std::size_t> seen;
  std::map<std::string, std::size_t> first_of;
  for (const Json& item : list->items()) {
    const std::size_t index = entries.size();
    const std::string where = std::string(source) + ": keys[" + std::to_string(index) + "]";
    if (!item.is_object()) return error(Code::kInvalidFile, where, ": is no object");
    CADRE_TRY(check_fields(item, where, kFields));
    CADRE_ASSIGN(KeyEntry entry, parse_entry(item).with_context(where));
    if (const auto [at, added] = seen.emplace(entry.hash, index); !added) {
      return error(Code::kInvalidFile, where, ": is the same key as keys[", at->second, "]");
    }
    if (const auto [at, added] = first_of.emplace(entry.grant.tenant, index);
        !added && entries[at->second].grant.limits != entry.grant.limits) {
      return error(Code::kInvalidFile, where, ": has other limits than keys[", at->second, "] of the same tenant '",
                   entry.grant.tenant, "', whose keys share them");
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::vector<KeyEntry>> read_keys_file(const std::string& path) {
  // All checks are on what was opened. Without O_NONBLOCK a FIFO would wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) {
    const int number = errno;
    return error(number == ENOENT ? Code::kNotFound : Code::kInvalidFile, path, ": ", std::strerror(number));
  }
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return error(Code::kInvalidFile, path, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return error(Code::kInvalidFile, path, ": is no regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return error(Code::kInvalidFile, path, ": belongs to user ", info.st_uid, ", want user ", ::geteuid(),
                 ", whom cadre runs as, or root");
  }
  if ((info.st_mode & 0027) != 0) {
    std::array<char, 16> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return error(Code::kInvalidFile, path, ": has mode ", mode.data(),
                 ", so that others can read or change it; `chmod 600` it, or 640 for a group that may read");
  }
  std::string text;
  std::array<char, 65536> block{};
  while (true) {
    const ssize_t got = ::read(file.fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error(Code::kInvalidFile, path, ": ", std::strerror(errno));
    if (got == 0) break;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxBytes) return error(Code::kLimitExceeded, path, ": is larger than ", kMaxBytes, " bytes");
  }
  return parse_keys(text, path);
}

std::string to_json(const KeyEntry& entry) {
  const Grant& grant = entry.grant;
  std::vector<Json::Member> members{{"tenant", grant.tenant}, {"sha256", to_hex(entry.hash)}};
  if (!grant.adapters.empty()) members.emplace_back("adapters", Json::array(grant.adapters));
  if (!grant.base) members.emplace_back("base", false);
  if (grant.metrics) members.emplace_back("metrics", true);
  const auto limit = [&](const char* name, std::int64_t value) {
    if (value > 0) members.emplace_back(name, value);
  };
  limit("requests_per_minute", grant.limits.requests_per_minute);
  limit("tokens_per_minute", grant.limits.tokens_per_minute);
  limit("max_concurrency", grant.limits.max_concurrency);
  if (grant.priority != 0) members.emplace_back("priority", grant.priority);
  if (grant.expires) members.emplace_back("expires", time_text(*grant.expires));
  if (!entry.note.empty()) members.emplace_back("note", entry.note);
  return Json::object(std::move(members)).dump();
}

Result<NewKey> new_key(Grant grant, std::string note) {
  if (Status status = check_grant(grant); !status.ok()) return Status(Code::kInvalidArgument, status.message());
  NewKey made;
  CADRE_ASSIGN(made.key, random_key());
  CADRE_ASSIGN(made.entry.hash, hash_key(made.key));
  made.entry.grant = std::move(grant);
  made.entry.note = std::move(note);
  return made;
}

}  // namespace cadre::server
