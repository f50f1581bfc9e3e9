#include "cli/keys_options.h"

#include <optional>
#include <utility>

#include "base/result.h"

namespace cadre::cli {

void add_keys_new(Flags& flags) {
  flags.group("Tenant");
  flags.value("--tenant", "NAME", "whose key it is; several keys may be one tenant's (required)");
  flags.words("--adapters", "GLOB", "names of adapters it may use, with * and ?; default: none");
  flags.toggle("--no-base", "it may not use the base model");
  flags.toggle("--metrics", "it may read /metrics, which speaks of all tenants");
  flags.group("Limits (of the tenant; its keys must agree on them)");
  flags.value("--requests-per-minute", "N", "default: no limit");
  flags.value("--tokens-per-minute", "N", "default: no limit");
  flags.value("--max-concurrency", "N", "requests under way; default: no limit");
  flags.value("--priority", "N", "-1000 to 1000, lower goes first; default: 0");
  flags.value("--expires", "TIME", "such as 2027-01-31 or 2027-01-31T12:00:00Z; default: never");
  flags.value("--note", "TEXT", "for people");
}

Result<Command> read_keys_new(const Flags& flags, const Environment&) {
  KeysNewCommand keys;
  server::Grant& grant = keys.grant;
  CADRE_ASSIGN(grant.tenant, flags.required("--tenant"));
  grant.adapters = flags.all("--adapters");
  grant.base = !flags.given("--no-base");
  grant.metrics = flags.given("--metrics");
  constexpr std::int64_t kMost = 1'000'000'000;
  std::optional<std::int64_t> requests, tokens, concurrency;
  std::optional<int> priority;
  CADRE_TRY(flags.number("--requests-per-minute", &requests, 1, kMost));
  CADRE_TRY(flags.number("--tokens-per-minute", &tokens, 1, kMost));
  CADRE_TRY(flags.number("--max-concurrency", &concurrency, 1, kMost));
  CADRE_TRY(flags.number("--priority", &priority, -1000, 1000));
  grant.limits = {requests.value_or(0), tokens.value_or(0), concurrency.value_or(0)};
  grant.priority = priority.value_or(0);
  if (const auto time = flags.text("--expires")) {
    Result<std::int64_t> expires = server::parse_time(*time);
    if (!expires.ok()) return std::move(expires).status().with_context("--expires");
    grant.expires = *expires;
  }
  keys.note = flags.text("--note").value_or("");
  return Command(std::move(keys));
}

}  // namespace cadre::cli
