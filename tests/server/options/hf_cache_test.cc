#include "cli/hf_cache.h"

#include <gmock/gmock.h>

#include "files.h"

namespace cadre::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOne = "0123456789abcdef0123456789abcdef01234567";
constexpr const char* kTwo = "0123ffff89abcdef0123456789abcdef01234567";

class HfCache : public ::testing::Test {
 protected:
  void add(const std::string& revision, const std::string& commit) {
    cache_.file("models--acme--moe-1.5/snapshots/" + commit + "/config.json", "{}");
    if (!revision.empty()) cache_.file("models--acme--moe-1.5/refs/" + revision, commit);
  }
  std::string found(const std::string& text) {
    const auto dir = find_model("--model", text, cache_.path());
    EXPECT_TRUE(dir.ok()) << dir.status().message();
    return dir.ok() ? *dir : "";
  }
  Status refused(const std::string& text) {
    const auto dir = find_model("--model", text, cache_.path());
    EXPECT_FALSE(dir.ok()) << *dir;
    return dir.status();
  }
  std::string snapshot(const std::string& commit) { return cache_.path("models--acme--moe-1.5/snapshots/" + commit); }

  TempFolder cache_;
};

TEST_F(HfCache, TheRevisionOfMain) {
  add("main", kOne);
  add("", kTwo);
  EXPECT_EQ(found("acme/moe-1.5"), snapshot(kOne));
  // Some tools end the file with a line end.
  cache_.file("models--acme--moe-1.5/refs/main", std::string(kTwo) + "\n");
  EXPECT_EQ(found("acme/moe-1.5"), snapshot(kTwo));
}

TEST_F(HfCache, ARevisionByName) {
  add("main", kOne);
  add("v2", kTwo);
  add("refs/pr/3", kTwo);
  EXPECT_EQ(found("acme/moe-1.5@v2"), snapshot(kTwo));
  EXPECT_EQ(found("acme/moe-1.5@refs/pr/3"), snapshot(kTwo));
  EXPECT_EQ(found(std::string("acme/moe-1.5@") + kTwo), snapshot(kTwo));
  EXPECT_EQ(found("acme/moe-1.5@0123f"), snapshot(kTwo));
  EXPECT_THAT(refused("acme/moe-1.5@0123").message(), HasSubstr("beginning of 2 commits"));
  const Status status = refused("acme/moe-1.5@v3");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("not its revision 'v3'"));
  EXPECT_THAT(status.message(), HasSubstr("acme/moe-1.5@0123456789ab"));
  EXPECT_THAT(status.message(), HasSubstr("hf download acme/moe-1.5 --revision v3"));
}

TEST_F(HfCache, WhatIsMissingIsSaid) {
  Status status = refused("acme/other");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("run: hf download acme/other"));
  EXPECT_THAT(status.message(), HasSubstr(cache_.path()));
  add("", kOne);  // fetched by its commit only: no refs/main
  EXPECT_THAT(refused("acme/moe-1.5").message(),
              HasSubstr("not its revision 'main'; choose acme/moe-1.5@0123456789ab"));
  cache_.file("models--acme--moe-1.5/refs/main", kTwo);  // a snapshot that was deleted
  EXPECT_THAT(refused("acme/moe-1.5").message(), HasSubstr("not its revision 'main'"));
  cache_.folder("models--acme--empty/snapshots");
  EXPECT_THAT(refused("acme/empty").message(), HasSubstr("holds no snapshot"));
  EXPECT_THAT(find_model("--model", "acme/moe-1.5", "").status().message(), HasSubstr("set HF_HUB_CACHE"));
}

TEST_F(HfCache, NothingLeadsOutOfTheCache) {
  const std::string outside = cache_.file("secret/config.json", "{}");
  add("main", kOne);
  cache_.file("models--acme--moe-1.5/refs/bad", "../../../secret");
  cache_.file("models--acme--moe-1.5/refs/long", std::string(1000, 'a'));
  EXPECT_FALSE(find_model("--model", "acme/moe-1.5@bad", cache_.path()).ok());
  EXPECT_FALSE(find_model("--model", "acme/moe-1.5@long", cache_.path()).ok());
  for (const char* text : {"../secret", "acme/..", "acme/moe-1.5@../../secret", "/acme/moe", "acme/moe/more", "acme",
                           "acme/", "acme/moe@", "-a/b", "a b/c", ""}) {
    EXPECT_FALSE(is_hub_name(text)) << text;
  }
  for (const char* text : {"a/b", "acme/moe-1.5", "Acme_2/x.y@v1.0", "a/b@refs/pr/1"}) EXPECT_TRUE(is_hub_name(text));
}

TEST_F(HfCache, WhatIsThereOrNoNameOfAHubIsLeftAsItIs) {
  const std::string there = cache_.folder("acme/moe-1.5");
  add("main", kOne);
  EXPECT_EQ(found(there), there);
  EXPECT_EQ(found("some/folder/not/there"), "some/folder/not/there");
  EXPECT_EQ(found("name"), "name");
}

TEST(HfCacheDir, InTheOrderOfTheHub) {
  std::map<std::string, std::string> variables = {{"HOME", "/h"}};
  EXPECT_EQ(hf_cache_dir({}), "");
  EXPECT_EQ(hf_cache_dir(variables), "/h/.cache/huggingface/hub");
  variables["XDG_CACHE_HOME"] = "/x";
  EXPECT_EQ(hf_cache_dir(variables), "/x/huggingface/hub");
  variables["HF_HOME"] = "~/hf";
  EXPECT_EQ(hf_cache_dir(variables), "/h/hf/hub");
  variables["HF_HUB_CACHE"] = "";  // empty is none
  EXPECT_EQ(hf_cache_dir(variables), "/h/hf/hub");
  variables["HF_HUB_CACHE"] = "/c";
  EXPECT_EQ(hf_cache_dir(variables), "/c");
}

}  // namespace
}  // namespace cadre::cli
