#include "server/access/access.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/result.h"
#include "server/access/names.h"

namespace cadre::server {
namespace {

constexpr std::size_t kMaxKeyLength = 512;

std::shared_ptr<const Grant> everything(std::string tenant, bool admin) {
  Grant grant;
  grant.tenant = std::move(tenant);
  grant.adapters = {"*"};
  grant.metrics = true;
  grant.admin = admin;
  return std::make_shared<const Grant>(std::move(grant));
}

bool is_key(std::string_view key) {
  return !key.empty() && key.size() <= kMaxKeyLength &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// What follows "Bearer ", in any case, without the spaces around it; nothing where the header has another form.
std::optional<std::string_view> bearer(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size()) return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    const char c = header[i] >= 'A' && header[i] <= 'Z' ? static_cast<char>(header[i] + 32) : header[i];
    if (c != kScheme[i]) return std::nullopt;
  }
  header.remove_prefix(kScheme.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  while (!header.empty() && header.back() == ' ') header.remove_suffix(1);
  if (!is_key(header)) return std::nullopt;
  return header;
}

// One answer for what is malformed, unknown and expired: no one learns which keys exist or existed.
Refusal unauthorized(bool presented) {
  Refusal refusal;
  refusal.status = 401;
  refusal.type = "authentication_error";
  refusal.reason = "unauthorized";
  if (presented) {
    refusal.code = "invalid_api_key";
    refusal.message = "the API key is not valid here";
    refusal.www_authenticate = "Bearer realm=\"cadre\", error=\"invalid_token\"";
  } else {
    refusal.code = "missing_api_key";
    refusal.message = "an API key is needed: send the header 'Authorization: Bearer KEY'";
    refusal.www_authenticate = "Bearer realm=\"cadre\"";
  }
  return refusal;
}

}  // namespace

bool may_use(const Caller& caller, std::string_view adapter) {
  if (adapter.empty()) return caller.grant->base;
  return std::any_of(caller.grant->adapters.begin(), caller.grant->adapters.end(),
                     [&](const std::string& pattern) { return matches(pattern, adapter); });
}

bool may_see_metrics(const Caller& caller) { return caller.grant->metrics; }

int priority_of(const Caller& caller, std::optional<int> asked) {
  const int own = caller.grant->priority;
  // A server without keys trusts its clients with their order, as vLLM does.
  if (caller.is_admin() || caller.is_anonymous()) return asked.value_or(own);
  return std::max(own, asked.value_or(own));
}

Status AccessTable::add(std::string_view key, std::string_view flag, std::shared_ptr<const Grant> grant) {
  if (!is_key(key)) {
    return error(Code::kInvalidArgument, flag, " is ", key.empty() ? "empty" : "no key", ", want 1 to ", kMaxKeyLength,
                 " printable characters without spaces");
  }
  CADRE_ASSIGN(const KeyHash hash, hash_key(key));
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    if (!equal(hashes_[i], hash)) continue;
    // The same key twice means the same; with different rights it means a mistake.
    if (grants_[i] == grant) return {};
    return error(Code::kInvalidArgument, flag, " is also a key of tenant '", grants_[i]->tenant,
                 "', want another: each key has its own rights");
  }
  hashes_.push_back(hash);
  grants_.push_back(std::move(grant));
  return {};
}

Result<std::shared_ptr<const AccessTable>> AccessTable::make(const std::vector<std::string>& api_keys,
                                                             const std::string& admin_key,
                                                             const std::optional<std::vector<KeyEntry>>& file) {
  auto table = std::make_shared<AccessTable>();
  table->anonymous_ = everything("", false);
  // A file without keys is not "no keys asked for": it lets nobody in.
  table->open_ = api_keys.empty() && !file.has_value();
  table->has_admin_ = !admin_key.empty();
  if (file.has_value()) {
    for (const KeyEntry& entry : *file) {
      table->hashes_.push_back(entry.hash);
      table->grants_.push_back(std::make_shared<const Grant>(entry.grant));
    }
  }
  const std::shared_ptr<const Grant> user = everything("default", false);
  for (const std::string& key : api_keys) CADRE_TRY(table->add(key, "--api-key", user));
  if (table->has_admin_) CADRE_TRY(table->add(admin_key, "--admin-key", everything("admin", true)));
  return std::shared_ptr<const AccessTable>(std::move(table));
}

std::variant<Caller, Refusal> AccessTable::identify(std::optional<std::string_view> authorization,
                                                    std::int64_t unix_time) const {
  if (hashes_.empty() && open_) return Caller{anonymous_};
  const std::optional<std::string_view> key = authorization ? bearer(*authorization) : std::nullopt;
  if (key) {
    const Result<KeyHash> hash = hash_key(*key);
    // All are compared, whichever fits. Hashes differ, so at most one does.
    std::size_t found = 0;
    for (std::size_t i = 0; hash.ok() && i < hashes_.size(); ++i) {
      found |= (i + 1) * static_cast<std::size_t>(equal(hashes_[i], *hash));
    }
    if (found != 0) {
      const std::shared_ptr<const Grant>& grant = grants_[found - 1];
      if (unix_time < grant->expires.value_or(std::numeric_limits<std::int64_t>::max())) return Caller{grant};
    }
  }
  // Clients of a server without keys often send some word for one, as their libraries want it.
  if (open_) return Caller{anonymous_};
  return unauthorized(authorization.has_value());
}

std::vector<std::string> AccessTable::tenants() const {
  std::vector<std::string> names;
  if (open_) names.push_back(anonymous_->tenant);
  for (const auto& grant : grants_) names.push_back(grant->tenant);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<std::unique_ptr<Access>> Access::open(AccessOptions options) {
  if (!options.unix_time) {
    options.unix_time = [] {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      return std::chrono::duration_cast<std::chrono::seconds>(now).count();
    };
  }
  std::unique_ptr<Access> access(new Access(std::move(options)));
  CADRE_TRY(access->reload());
  return access;
}

Status Access::reload() {
  std::optional<std::vector<KeyEntry>> file;
  if (!options_.keys_file.empty()) {
    CADRE_ASSIGN(file, read_keys_file(options_.keys_file));
  }
  CADRE_ASSIGN(auto table, AccessTable::make(options_.api_keys, options_.admin_key, file));
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
  return {};
}

std::shared_ptr<const AccessTable> Access::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

std::variant<Caller, Refusal> Access::identify(std::optional<std::string_view> authorization) const {
  return table()->identify(authorization, options_.unix_time());
}

std::optional<Refusal> Access::refuse_admin(const Caller& caller) const {
  if (caller.is_admin()) return std::nullopt;
  if (table()->has_admin() && caller.is_anonymous()) {
    Refusal refusal = unauthorized(false);
    refusal.message = "this needs the admin key, as Authorization: Bearer KEY";
    return refusal;
  }
  Refusal refusal;
  refusal.status = 403;
  refusal.type = "permission_error";
  refusal.code = "admin_only";
  refusal.reason = "forbidden";
  refusal.message = table()->has_admin() ? "this needs the admin key"
                                         : "changing adapters at run time is off: the server has no --admin-key";
  return refusal;
}

}  // namespace cadre::server
