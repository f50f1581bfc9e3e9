#include "server/access/keys_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <string>

#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre::server {
namespace {

// SHA-256 of "abc" and of "", from FIPS 180-4's examples.
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string entry(const std::string& more, const char* hash = kAbc) {
  return std::string(R"({"sha256": ")") + hash + "\"" + more + "}";
}
std::string file(const std::string& entries) { return "{\"keys\": [" + entries + "]}"; }

TEST(KeyHash, KnownValues) {
  EXPECT_EQ(to_hex(*hash_key("abc")), kAbc);
  EXPECT_EQ(to_hex(*hash_key("")), kNothing);
  EXPECT_EQ(*parse_hash(kAbc), *hash_key("abc"));
  EXPECT_EQ(*parse_hash("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"), *hash_key("abc"));
}

// Equal only where every byte is, wherever the difference.
TEST(KeyHash, EveryByteCounts) {
  const KeyHash hash = *hash_key("abc");
  EXPECT_TRUE(equal(hash, *hash_key("abc")));
  for (std::size_t i = 0; i < hash.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      KeyHash other = hash;
      other[i] = static_cast<std::uint8_t>(other[i] ^ (1 << bit));
      EXPECT_FALSE(equal(hash, other)) << i << " " << bit;
    }
  }
}

TEST(KeyHash, RandomKeys) {
  std::set<std::string> keys;
  std::set<char> seen;
  for (int i = 0; i < 200; ++i) {
    const std::string key = *random_key();
    EXPECT_TRUE(key.starts_with("cadre-"));
    EXPECT_EQ(key.size(), 6u + 43u);
    EXPECT_EQ(key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), key.npos);
    seen.insert(key.begin() + 6, key.end());
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 200u);
  EXPECT_EQ(seen.size(), 64u);  // of 8,600 digits each is there
}

TEST(KeysFile, EveryField) {
  const auto keys = parse_keys(file(entry(R"(, "tenant": "team-a", "adapters": ["team-a-*", "shared"], "base": false,
      "metrics": true, "requests_per_minute": 60, "tokens_per_minute": 1000, "max_concurrency": 2, "priority": -5,
      "expires": "2027-01-31T12:30:01Z", "note": "for the nightly run")")),
                               "keys.json");
  ASSERT_THAT(keys, Succeeds());
  ASSERT_EQ(keys->size(), 1u);
  const KeyEntry& key = keys->front();
  EXPECT_EQ(to_hex(key.hash), kAbc);
  EXPECT_EQ(key.grant.tenant, "team-a");
  EXPECT_EQ(key.grant.adapters, (std::vector<std::string>{"team-a-*", "shared"}));
  EXPECT_FALSE(key.grant.base);
  EXPECT_TRUE(key.grant.metrics);
  EXPECT_FALSE(key.grant.admin);
  EXPECT_EQ(key.grant.limits, (TenantLimits{60, 1000, 2}));
  EXPECT_EQ(key.grant.priority, -5);
  EXPECT_EQ(key.grant.expires, 1801398601);
  EXPECT_EQ(key.note, "for the nightly run");
  // Written and read again: the same.
  const auto again = parse_keys(file(to_json(key)), "again");
  ASSERT_THAT(again, Succeeds());
  EXPECT_EQ(again->front(), key);
}

TEST(KeysFile, Defaults) {
  const auto keys = parse_keys(file(entry(R"(, "tenant": "a")")), "keys.json");
  ASSERT_THAT(keys, Succeeds());
  const Grant& grant = keys->front().grant;
  EXPECT_TRUE(grant.adapters.empty());
  EXPECT_TRUE(grant.base);
  EXPECT_FALSE(grant.metrics);
  EXPECT_EQ(grant.limits, TenantLimits());
  EXPECT_EQ(grant.priority, 0);
  EXPECT_FALSE(grant.expires);
  const auto none = parse_keys(R"({"keys": []})", "k");
  ASSERT_THAT(none, Succeeds());
  EXPECT_TRUE(none->empty());
}

TEST(KeysFile, RefusedByName) {
  struct Case {
    std::string text, phrase;
  };
  const std::string a = R"(, "tenant": "a")";
  const std::vector<Case> cases{
      {"", "keys.json"},
      {"[]", "want {\"keys\": [...]}"},
      {"{}", "want {\"keys\": [...]}"},
      {R"({"keys": {}})", "want {\"keys\": [...]}"},
      {R"({"keys": [], "kesy": 1})", "unknown field 'kesy', did you mean 'keys'?"},
      {R"({"keys": [], "keys": []})", "keys"},
      {R"({"keys": [1]})", "keys[0]: is no object"},
      {file(entry("")), "tenant"},
      {file(R"({"tenant": "a"})"), "keys[0]: field 'sha256' is missing"},
      {file(R"({"tenant": "a", "sha256": 1})"), "'sha256' is not a string"},
      {file(R"({"tenant": "a", "sha256": "cadre-secret"})"), "field 'sha256': has 12 characters"},
      {file(R"({"tenant": "a", "sha256": "zz7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"})"),
       "no hexadecimal digit"},
      {file(entry(a + R"(, "request_per_minute": 1)")), "did you mean 'requests_per_minute'?"},
      {file(entry(a + R"(, "admin": true)")), "unknown field 'admin'"},
      {file(entry(R"(, "tenant": "")")), "tenant '' is no name"},
      {file(entry(R"(, "tenant": "../x")")), "tenant '../x' is no name"},
      {file(entry(R"(, "tenant": "a\nb")")), "tenant 'a?b' is no name"},
      {file(entry(R"(, "tenant": "admin")")), "take another name"},
      {file(entry(R"(, "tenant": "default")")), "take another name"},
      {file(entry(a + R"(, "adapters": "x")")), "adapters"},
      {file(entry(a + R"(, "adapters": ["a/b"])")), "adapter 'a/b' is no name or pattern"},
      {file(entry(a + R"(, "adapters": [1])")), "adapters"},
      {file(entry(a + R"(, "base": 1)")), "base"},
      {file(entry(a + R"(, "requests_per_minute": 0)")), "requests_per_minute"},
      {file(entry(a + R"(, "tokens_per_minute": -1)")), "tokens_per_minute"},
      {file(entry(a + R"(, "max_concurrency": 1.5)")), "max_concurrency"},
      {file(entry(a + R"(, "priority": 1001)")), "priority"},
      {file(entry(a + R"(, "expires": "tomorrow")")), "field 'expires': 'tomorrow' is no time"},
      {file(entry(a + R"(, "expires": "2027-02-30")")), "is no time"},
      {file(entry(a) + "," + entry(a)), "keys[1]: is the same key as keys[0]"},
      {file(entry(a) + "," + entry(a + R"(, "max_concurrency": 1)", kNothing)),
       "keys[1]: has other limits than keys[0] of the same tenant 'a'"},
  };
  for (const Case& c : cases) {
    const auto keys = parse_keys(c.text, "keys.json");
    EXPECT_THAT(keys, FailsWith(Code::kInvalidFile, c.phrase)) << c.text;
    EXPECT_TRUE(keys.status().message().starts_with("keys.json")) << keys.status().message();
    // Whatever stood where a hash should be is not repeated.
    EXPECT_EQ(keys.status().message().find("secret"), std::string::npos);
    EXPECT_EQ(keys.status().message().find("7816bf"), std::string::npos);
  }
}

TEST(KeysFile, TwoKeysOfOneTenant) {
  const std::string a = R"(, "tenant": "a", "max_concurrency": 3)";
  const auto keys = parse_keys(file(entry(a) + "," + entry(a + R"(, "adapters": ["x"])", kNothing)), "k");
  ASSERT_THAT(keys, Succeeds());
  EXPECT_EQ(keys->size(), 2u);
}

TEST(KeysFile, TooMany) {
  std::string entries;
  for (int i = 0; i < 10'001; ++i) entries += std::string(i > 0 ? "," : "") + "1";
  EXPECT_THAT(parse_keys(file(entries), "k"), FailsWith(Code::kLimitExceeded, "10001 keys"));
}

TEST(KeysFile, Times) {
  EXPECT_EQ(*parse_time("1970-01-01"), 0);
  EXPECT_EQ(*parse_time("1970-01-01T00:00:01Z"), 1);
  EXPECT_EQ(*parse_time("2000-02-29"), 951782400);
  EXPECT_EQ(*parse_time("1969-12-31T23:59:59Z"), -1);
  for (const char* text :
       {"", "2027", "2027-1-31", "2027-13-01", "2027-00-10", "2027-01-32", "2027-01-31T24:00:00Z",
        "2027-01-31T00:60:00Z", "2027-01-31T00:00:00", "2027-01-31 00:00:00Z", "2027-01-31T00:00:00+0", "20x7-01-31"}) {
    EXPECT_THAT(parse_time(text), FailsWith(Code::kInvalidFile, "is no time")) << text;
  }
}

TEST(KeysFile, RightsOfTheFile) {
  const TempDir dir;
  const std::string path = dir.write("keys.json", file(entry(R"(, "tenant": "a")")));
  for (const unsigned mode : {0600u, 0400u, 0640u, 0440u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(read_keys_file(path), Succeeds()) << std::oct << mode;
  }
  for (const unsigned mode : {0644u, 0604u, 0602u, 0660u, 0620u, 0601u, 0666u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(read_keys_file(path), FailsWith(Code::kInvalidFile, "`chmod 600` it")) << std::oct << mode;
  }
}

TEST(KeysFile, WhatIsNoFile) {
  const TempDir dir;
  EXPECT_THAT(read_keys_file(dir / "absent.json"), FailsWith(Code::kNotFound, "absent.json"));
  EXPECT_THAT(read_keys_file(dir.path()), FailsWith(Code::kInvalidFile, "is no regular file"));
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(read_keys_file(fifo), FailsWith(Code::kInvalidFile, "is no regular file"));
  const std::string large = dir.write("large.json", std::string((8u << 20) + 1, ' '));
  ASSERT_EQ(::chmod(large.c_str(), 0600), 0);
  EXPECT_THAT(read_keys_file(large), FailsWith(Code::kLimitExceeded, "larger than"));
}

TEST(KeysFile, NewKey) {
  Grant grant;
  grant.tenant = "team-a";
  grant.adapters = {"team-a-*"};
  grant.expires = 1801398601;
  const auto made = new_key(grant, "a note");
  ASSERT_THAT(made, Succeeds());
  const std::string json = to_json(made->entry);
  EXPECT_EQ(json.find(made->key), json.npos);
  const auto read = parse_keys(file(json), "k");
  ASSERT_THAT(read, Succeeds());
  EXPECT_EQ(read->front(), made->entry);
  EXPECT_TRUE(equal(read->front().hash, *hash_key(made->key)));
  grant.tenant = "a b";
  EXPECT_THAT(new_key(grant), FailsWith(Code::kInvalidArgument, "tenant 'a b' is no name"));
}

}  // namespace
}  // namespace cadre::server
