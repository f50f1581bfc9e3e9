// Who asks, and what they may use. A table of keys is immutable and shared; reloading makes another, so that a request
// keeps the rights it came with.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/access/keys_file.h"
#include "server/access/refusal.h"

namespace cadre::server {

struct Caller {
  std::shared_ptr<const Grant> grant;  // never null
  const std::string& tenant() const { return grant->tenant; }
  bool is_admin() const { return grant->admin; }
  bool is_anonymous() const { return grant->tenant.empty(); }
};

// Whether the caller may know of and use an adapter; an empty name is the base model. What it may not use does not
// exist for it: the answer is that of an unknown model, and lists leave it out.
bool may_use(const Caller& caller, std::string_view adapter);
bool may_see_metrics(const Caller& caller);
// The priority a request runs with: a key's own, and what the request asks for only where that is no better.
int priority_of(const Caller& caller, std::optional<int> asked);

class AccessTable {
 public:
  // Keys given on the command line are one tenant, "default", which may use everything; the admin key is "admin".
  static Result<std::shared_ptr<const AccessTable>> make(const std::vector<std::string>& api_keys,
                                                         const std::string& admin_key,
                                                         const std::optional<std::vector<KeyEntry>>& file);

  // `authorization` is that header's value, where there is one. Takes as long for an unknown key as for a known one.
  std::variant<Caller, Refusal> identify(std::optional<std::string_view> authorization, std::int64_t unix_time) const;
  bool open() const { return open_; }            // no key is asked for
  bool has_admin() const { return has_admin_; }  // adapters may be loaded and unloaded at run time
  std::size_t size() const { return hashes_.size(); }
  std::vector<std::string> tenants() const;  // sorted, each once

 private:
  Status add(std::string_view key, std::string_view flag, std::shared_ptr<const Grant> grant);

  std::vector<KeyHash> hashes_;
  std::vector<std::shared_ptr<const Grant>> grants_;
  std::shared_ptr<const Grant> anonymous_;
  bool open_ = true;
  bool has_admin_ = false;
};

struct AccessOptions {
  std::vector<std::string> api_keys;        // --api-key
  std::string admin_key;                    // --admin-key; empty: none
  std::string keys_file;                    // --keys; empty: none
  std::function<std::int64_t()> unix_time;  // for tests; absent: the system's
};

// The present table. Thread-safe.
class Access {
 public:
  static Result<std::unique_ptr<Access>> open(AccessOptions options);
  // Reads the file again. Where that fails the table stays as it was.
  Status reload();
  std::shared_ptr<const AccessTable> table() const;
  std::variant<Caller, Refusal> identify(std::optional<std::string_view> authorization) const;
  // Nothing, or why the caller may not change what is loaded.
  std::optional<Refusal> refuse_admin(const Caller& caller) const;

 private:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  AccessOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const AccessTable> table_;
};

}  // namespace cadre::server
