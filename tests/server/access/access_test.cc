#include "server/access/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <string>
#include <thread>

#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre::server {
namespace {

std::string entry(const std::string& key, const std::string& more) {
  return R"({"sha256": ")" + to_hex(*hash_key(key)) + "\", " + more + "}";
}

// Writes a keys file as it has to be.
std::string keys_file(const TempDir& dir, const std::string& entries) {
  const std::string path = dir.write("keys.json", "{\"keys\": [" + entries + "]}");
  EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
  return path;
}

std::unique_ptr<Access> opened(AccessOptions options) {
  auto access = Access::open(std::move(options));
  EXPECT_THAT(access, Succeeds());
  return access.ok() ? std::move(access).value() : nullptr;
}

// Whose key a header is: the tenant, or "!" and the status.
std::string who(const Access& access, std::optional<std::string_view> header) {
  const auto answer = access.identify(header);
  if (const auto* refusal = std::get_if<Refusal>(&answer)) return "!" + std::to_string(refusal->status);
  const Caller& caller = std::get<Caller>(answer);
  return caller.is_anonymous() ? "anonymous" : caller.tenant();
}

TEST(Access, OpenServer) {
  const auto access = opened({});
  EXPECT_TRUE(access->table()->open());
  EXPECT_EQ(who(*access, std::nullopt), "anonymous");
  EXPECT_EQ(who(*access, "Bearer EMPTY"), "anonymous");
  EXPECT_EQ(who(*access, "nonsense"), "anonymous");
  const Caller caller = std::get<Caller>(access->identify(std::nullopt));
  EXPECT_FALSE(caller.is_admin());
  EXPECT_TRUE(may_use(caller, ""));
  EXPECT_TRUE(may_use(caller, "any"));
  EXPECT_TRUE(may_see_metrics(caller));
  EXPECT_EQ(caller.tenant(), "");
  const auto refusal = access->refuse_admin(caller);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 403);
  EXPECT_NE(refusal->message.find("no --admin-key"), std::string::npos);
}

TEST(Access, HeaderForms) {
  const auto access = opened({.api_keys = {"k1", "k2"}, .admin_key = "root"});
  struct Case {
    std::optional<std::string_view> header;
    const char* who;
  };
  const std::string long_key = "Bearer " + std::string(100'000, 'x');
  const std::vector<Case> cases{
      {"Bearer k1", "default"},
      {"Bearer k2", "default"},
      {"bearer k1", "default"},
      {"BEARER   k1  ", "default"},
      {"Bearer root", "admin"},
      {std::nullopt, "!401"},
      {"", "!401"},
      {"k1", "!401"},
      {"Bearer", "!401"},
      {"Bearer ", "!401"},
      {"Bearer      ", "!401"},
      {"Bearer k", "!401"},
      {"Bearer k11", "!401"},
      {"Bearer K1", "!401"},
      {"Bearer k1 k2", "!401"},
      {"Bearer k1,Bearer k2", "!401"},
      {"Basic k1", "!401"},
      {"Bearer\tk1", "!401"},
      {"Bearerk1", "!401"},
      {"Bearer k1\n", "!401"},
      {std::string_view("Bearer k1\0", 10), "!401"},
      {long_key, "!401"},
  };
  for (const Case& c : cases) EXPECT_EQ(who(*access, c.header), c.who) << c.header.value_or("(none)").substr(0, 50);
}

TEST(Access, RefusalsSayNoMoreThanTheyMust) {
  const auto access = opened({.api_keys = {"k1"}});
  const Refusal none = std::get<Refusal>(access->identify(std::nullopt));
  EXPECT_EQ(none.www_authenticate, "Bearer realm=\"cadre\"");
  EXPECT_EQ(none.code, "missing_api_key");
  const Refusal wrong = std::get<Refusal>(access->identify("Bearer sesame"));
  const Refusal malformed = std::get<Refusal>(access->identify("Basic sesame"));
  EXPECT_EQ(wrong.www_authenticate, "Bearer realm=\"cadre\", error=\"invalid_token\"");
  EXPECT_EQ(wrong.code, "invalid_api_key");
  EXPECT_EQ(wrong.message, malformed.message);
  EXPECT_EQ(wrong.message.find("sesame"), std::string::npos);
}

TEST(Access, AdminKeyAlone) {
  const auto access = opened({.admin_key = "root"});
  EXPECT_EQ(who(*access, std::nullopt), "anonymous");
  EXPECT_EQ(who(*access, "Bearer x"), "anonymous");
  EXPECT_EQ(who(*access, "Bearer root"), "admin");
  const auto anonymous = access->refuse_admin(std::get<Caller>(access->identify(std::nullopt)));
  ASSERT_TRUE(anonymous);
  EXPECT_EQ(anonymous->status, 401);
  EXPECT_FALSE(anonymous->www_authenticate.empty());
  EXPECT_FALSE(access->refuse_admin(std::get<Caller>(access->identify("Bearer root"))));
}

TEST(Access, OneKeyDoesNotAdminister) {
  const auto access = opened({.api_keys = {"k"}, .admin_key = "root"});
  const auto refusal = access->refuse_admin(std::get<Caller>(access->identify("Bearer k")));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 403);
  EXPECT_EQ(refusal->message, "this needs the admin key");
}

TEST(Access, WrongOptions) {
  EXPECT_THAT(Access::open({.api_keys = {""}}), FailsWith(Code::kInvalidArgument, "--api-key is empty"));
  EXPECT_THAT(Access::open({.api_keys = {"a b"}}), FailsWith(Code::kInvalidArgument, "--api-key is no key"));
  EXPECT_THAT(Access::open({.admin_key = "\n"}), FailsWith(Code::kInvalidArgument, "--admin-key is no key"));
  EXPECT_THAT(Access::open({.api_keys = {"x"}, .admin_key = "x"}),
              FailsWith(Code::kInvalidArgument, "--admin-key is also a key of tenant 'default'"));
  EXPECT_THAT(Access::open({.keys_file = "/nowhere/keys.json"}), FailsWith(Code::kNotFound, "/nowhere/keys.json"));
  EXPECT_EQ(opened({.api_keys = {"x", "x"}})->table()->size(), 1u);
  const TempDir dir;
  const std::string path = keys_file(dir, entry("x", R"("tenant": "a")"));
  EXPECT_THAT(Access::open({.api_keys = {"x"}, .keys_file = path}),
              FailsWith(Code::kInvalidArgument, "--api-key is also a key of tenant 'a'"));
}

TEST(Access, AFileWithoutKeysLetsNobodyIn) {
  const TempDir dir;
  const auto access = opened({.keys_file = keys_file(dir, "")});
  EXPECT_FALSE(access->table()->open());
  EXPECT_EQ(who(*access, std::nullopt), "!401");
  EXPECT_EQ(who(*access, "Bearer x"), "!401");
}

TEST(Access, WhatTenantsMayUse) {
  const TempDir dir;
  const auto access =
      opened({.admin_key = "root",
              .keys_file = keys_file(dir, entry("ka", R"("tenant": "a", "adapters": ["a-*", "shared"])") + "," +
                                              entry("kb", R"("tenant": "b", "base": false,
                                                              "adapters": ["b-?"], "priority": 5)") +
                                              "," + entry("kp", R"("tenant": "prom", "base": false,
                                                              "metrics": true)"))});
  const Caller a = std::get<Caller>(access->identify("Bearer ka")), b = std::get<Caller>(access->identify("Bearer kb"));
  const Caller prom = std::get<Caller>(access->identify("Bearer kp"));
  const Caller root = std::get<Caller>(access->identify("Bearer root"));
  EXPECT_TRUE(may_use(a, ""));
  EXPECT_TRUE(may_use(a, "a-1"));
  EXPECT_TRUE(may_use(a, "shared"));
  EXPECT_FALSE(may_use(a, "b-1"));
  EXPECT_FALSE(may_use(a, "a"));
  EXPECT_FALSE(may_use(b, ""));
  EXPECT_TRUE(may_use(b, "b-1"));
  EXPECT_FALSE(may_use(b, "b-12"));
  EXPECT_FALSE(may_use(prom, ""));
  EXPECT_FALSE(may_use(prom, "a-1"));
  EXPECT_TRUE(may_see_metrics(prom));
  EXPECT_FALSE(may_see_metrics(a));
  EXPECT_TRUE(may_use(root, "b-1"));
  EXPECT_TRUE(may_see_metrics(root));
  // Lower goes first, and no key reaches above its own.
  EXPECT_EQ(priority_of(b, std::nullopt), 5);
  EXPECT_EQ(priority_of(b, -3), 5);
  EXPECT_EQ(priority_of(b, 9), 9);
  EXPECT_EQ(priority_of(root, -3), -3);
  EXPECT_EQ(access->table()->tenants(), (std::vector<std::string>{"a", "admin", "b", "prom"}));
}

TEST(Access, Expiry) {
  const TempDir dir;
  std::int64_t now = 1801353599;
  const auto access = opened({.keys_file = keys_file(dir, entry("k", R"("tenant": "a", "expires": "2027-01-31")")),
                              .unix_time = [&] { return now; }});
  EXPECT_EQ(who(*access, "Bearer k"), "a");
  now = 1801353600;
  EXPECT_EQ(who(*access, "Bearer k"), "!401");
}

TEST(Access, Reload) {
  const TempDir dir;
  const auto access = opened({.keys_file = keys_file(dir, entry("old", R"("tenant": "a", "adapters": ["x"])"))});
  const Caller before = std::get<Caller>(access->identify("Bearer old"));
  keys_file(dir, entry("new", R"("tenant": "a")"));
  EXPECT_EQ(who(*access, "Bearer new"), "!401");
  ASSERT_THAT(access->reload(), Succeeds());
  EXPECT_EQ(who(*access, "Bearer new"), "a");
  EXPECT_EQ(who(*access, "Bearer old"), "!401");
  // A request that runs keeps what it came with.
  EXPECT_TRUE(may_use(before, "x"));
  keys_file(dir, "nonsense");
  EXPECT_THAT(access->reload(), FailsWith(Code::kInvalidFile, "keys.json"));
  EXPECT_EQ(who(*access, "Bearer new"), "a");
}

TEST(Access, ReloadWhileAsked) {
  const TempDir dir;
  const std::string path = keys_file(dir, entry("k", R"("tenant": "a")"));
  const auto access = opened({.keys_file = path});
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread asking([&] {
    while (!done) wrong += who(*access, "Bearer k") != "a";
  });
  for (int i = 0; i < 200; ++i) EXPECT_THAT(access->reload(), Succeeds());
  done = true;
  asking.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace cadre::server
