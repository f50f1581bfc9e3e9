#include "server/access/adapter_root.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre::server {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// ROOT with two adapters, a secret beside it, and links of every kind. Each test runs with openat2 and without.
class AdapterRootTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    dir.write("secret/adapter_config.json", "outside");
    dir.write("secret/adapter_model.safetensors", "outside");
    dir.write("root/a/adapter_config.json", "inside a");
    dir.write("root/a/adapter_model.safetensors", "12345");
    dir.write("root/team/b/adapter_config.json", "inside b");
    dir.write("root/empty/readme.txt", "x");
    dir.write("root/file", "x");
    dir.write("root/.hidden/adapter_config.json", "x");
    root = (dir / "root").string();
    link("../secret", "out");
    link((dir / "secret").string(), "out_absolute");
    link(root + "/a", "in_absolute");
    link("a", "in");
    link("team/b", "in_deep");
    link("loop", "loop");
    link("nowhere", "dangling");
    link("/proc/self/cwd", "magic");
    dir.write("root/leaky/adapter_config.json", "x");
    link("../../secret/adapter_model.safetensors", "leaky/adapter_model.safetensors");
    fs::create_directories(dir / "root/leaky_config");
    link("../../secret/adapter_config.json", "leaky_config/adapter_config.json");
    dir.write("root/blobs/1", "inside blob");
    fs::create_directories(dir / "root/cached");
    link("../blobs/1", "cached/adapter_config.json");
    dir.write("root/piped/adapter_config.json", "x");
    ASSERT_EQ(::mkfifo((dir / "root/piped/adapter_model.safetensors").c_str(), 0600), 0);
    reopen({});
  }
  void link(const std::string& target, const std::string& name) { fs::create_symlink(target, fs::path(root) / name); }
  void reopen(AdapterRootOptions options) {
    options.use_openat2 = GetParam();
    auto opened = AdapterRoot::open(root, options);
    ASSERT_THAT(opened, Succeeds());
    adapters = std::make_unique<AdapterRoot>(std::move(opened).value());
  }

  TempDir dir;
  std::string root;
  std::unique_ptr<AdapterRoot> adapters;
};

INSTANTIATE_TEST_SUITE_P(Kernel, AdapterRootTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "WithOpenat2" : "Without"; });

TEST_P(AdapterRootTest, Inside) {
  for (const std::string path : {"a", "a/", "./a", "a/.", ".//a//", "team/../a"}) {
    const auto folder = adapters->resolve(path);
    if (path.find("..") != path.npos) {
      EXPECT_THAT(folder, FailsWith(Code::kInvalidArgument, "has '..'"));
      continue;
    }
    ASSERT_THAT(folder, Succeeds()) << path;
    EXPECT_EQ(folder->name(), "a");
    EXPECT_EQ(folder->dir(), root + "/a");
    EXPECT_EQ(folder->bytes(), 8 + 5);
    EXPECT_EQ(content(fs::path(folder->open_dir()) / "adapter_config.json"), "inside a");
    EXPECT_THAT(folder->unchanged(), Succeeds());
  }
  EXPECT_EQ(adapters->resolve("team/b")->dir(), root + "/team/b");
  EXPECT_EQ(adapters->resolve("team/b")->name(), "b");
  EXPECT_EQ(adapters->path(), root);
}

// As vLLM's clients send them.
TEST_P(AdapterRootTest, Absolute) {
  EXPECT_EQ(adapters->resolve(root + "/a")->dir(), root + "/a");
  EXPECT_EQ(adapters->resolve(root + "//team/b/")->dir(), root + "/team/b");
  for (const std::string& path : {root + "x/a", root + "/../secret", std::string("/etc"), std::string("/"),
                                  (dir / "secret").string(), "/" + root + "/a", root + "/./../secret"}) {
    EXPECT_FALSE(adapters->resolve(path).ok()) << path;
  }
  EXPECT_THAT(adapters->resolve(root), FailsWith(Code::kInvalidArgument, "outside"));
  EXPECT_THAT(adapters->resolve(root + "/"), FailsWith(Code::kInvalidArgument, "folder of the server itself"));
  // A root that is itself reached by a link: both of its names will do.
  fs::create_directory_symlink(root, dir / "alias");
  auto alias = AdapterRoot::open(dir / "alias", {.use_openat2 = GetParam()});
  ASSERT_THAT(alias, Succeeds());
  EXPECT_EQ(alias->resolve((dir / "alias/a").string())->dir(), root + "/a");
  EXPECT_EQ(alias->resolve(root + "/a")->dir(), root + "/a");
}

TEST_P(AdapterRootTest, Refused) {
  struct Case {
    std::string path;
    Code code;
    std::string phrase;
  };
  std::string deep = "a";
  for (int i = 0; i < 20; ++i) deep += "/a";
  const std::vector<Case> cases{
      {"", Code::kInvalidArgument, "is empty"},
      {".", Code::kInvalidArgument, "itself"},
      {"..", Code::kInvalidArgument, "has '..'"},
      {"../secret", Code::kInvalidArgument, "has '..'"},
      {"a/../../secret", Code::kInvalidArgument, "has '..'"},
      {"a/..", Code::kInvalidArgument, "has '..'"},
      {"/etc/passwd", Code::kInvalidArgument, "outside"},
      {std::string("a\0b", 3), Code::kInvalidArgument, "control character"},
      {std::string("a\0", 2), Code::kInvalidArgument, "control character"},
      {"a\nb", Code::kInvalidArgument, "control character"},
      {".hidden", Code::kInvalidArgument, "hidden"},
      {"...", Code::kInvalidArgument, "hidden"},
      {std::string(2'000, 'x'), Code::kInvalidArgument, "too long"},
      {std::string(300, 'x'), Code::kInvalidArgument, "too long"},
      {deep, Code::kInvalidArgument, "too deep"},
      {"absent", Code::kNotFound, "is no folder"},
      {"file", Code::kNotFound, "is no folder"},
      {"file/a", Code::kNotFound, "is no folder"},
      {"a/adapter_config.json", Code::kNotFound, "is no folder"},
      {"empty", Code::kNotFound, "holds no adapter_config.json"},
      {"team", Code::kNotFound, "holds no adapter_config.json"},
      {"..%2fsecret", Code::kInvalidArgument, "hidden"},
      {"~", Code::kNotFound, "is no folder"},
      {"\\..\\secret", Code::kNotFound, "is no folder"},
      {"piped", Code::kInvalidArgument, "is no regular file"},
      {"leaky", Code::kInvalidArgument, "'adapter_model.safetensors' is a link that leads nowhere or out"},
      {"leaky_config", Code::kInvalidArgument, "'adapter_config.json' is a link that leads nowhere or out"},
      {"dangling", Code::kNotFound, "is no folder"},
  };
  for (const Case& c : cases) {
    const auto folder = adapters->resolve(c.path);
    EXPECT_THAT(folder, FailsWith(c.code, c.phrase)) << c.path;
    // Where the root is, is said to nobody, and no control character comes back.
    const std::string& message = folder.status().message();
    EXPECT_EQ(message.find(dir.path().string()), message.npos) << message;
    for (const char ch : message) EXPECT_GE(static_cast<unsigned char>(ch), 0x20) << message;
  }
}

TEST_P(AdapterRootTest, Links) {
  for (const char* out : {"out", "out_absolute", "magic", "loop"}) {
    const auto folder = adapters->resolve(out);
    ASSERT_FALSE(folder.ok()) << out;
    EXPECT_EQ(folder.status().message().find(dir.path().string()), std::string::npos);
  }
  EXPECT_FALSE(adapters->resolve("out/../secret").ok());
  if (GetParam()) {
    EXPECT_THAT(adapters->resolve("out"), FailsWith(Code::kInvalidArgument, "a link that leaves"));
    EXPECT_EQ(adapters->resolve("in")->dir(), root + "/a");
    EXPECT_EQ(adapters->resolve("in_deep")->dir(), root + "/team/b");
    EXPECT_EQ(adapters->resolve("in_deep")->name(), "in_deep");
    EXPECT_EQ(adapters->resolve("cached")->bytes(), 11);
    // The kernel takes an absolute link as one that leaves, wherever it leads.
    EXPECT_FALSE(adapters->resolve("in_absolute").ok());
  } else {
    for (const char* any : {"in", "in_deep", "cached", "in_absolute"}) EXPECT_FALSE(adapters->resolve(any).ok()) << any;
  }
}

TEST_P(AdapterRootTest, Sizes) {
  reopen({.max_bytes = 12});
  EXPECT_THAT(adapters->resolve("a"), FailsWith(Code::kLimitExceeded, "larger than 12 bytes"));
  EXPECT_THAT(adapters->resolve("team/b"), Succeeds());
  reopen({.max_bytes = 13});
  EXPECT_THAT(adapters->resolve("a"), Succeeds());
  reopen({.max_files = 1});
  EXPECT_THAT(adapters->resolve("a"), FailsWith(Code::kLimitExceeded, "more than 1 files"));
  // A sparse file of 8 EiB does not overflow the sum.
  const std::string huge = dir.write("root/huge/adapter_config.json", "x");
  dir.write("root/huge/x", "x");
  ASSERT_EQ(::truncate((dir / "root/huge/x").c_str(), off_t{1} << 43), 0);
  reopen({.max_bytes = 1'000});
  EXPECT_THAT(adapters->resolve("huge"), FailsWith(Code::kLimitExceeded, "larger than"));
}

TEST_P(AdapterRootTest, ChangedWhileRead) {
  const std::vector<std::function<void()>> changes{
      [&] { dir.write("root/a/adapter_model.safetensors", "54321"); },
      [&] { dir.write("root/a/more", ""); },
      [&] { fs::remove(dir / "root/a/adapter_model.safetensors"); },
      [&] {  // the same name, size and time of modification
        const auto time = fs::last_write_time(dir / "root/a/adapter_model.safetensors");
        dir.write("root/a2", "xxxxx");
        fs::rename(dir / "root/a2", dir / "root/a/adapter_model.safetensors");
        fs::last_write_time(dir / "root/a/adapter_model.safetensors", time);
      },
      [&] {  // swapped for another and swapped back
        fs::rename(dir / "root/a/adapter_model.safetensors", dir / "root/kept");
        fs::create_symlink("../../secret/adapter_model.safetensors", dir / "root/a/adapter_model.safetensors");
        fs::rename(dir / "root/kept", dir / "root/a/adapter_model.safetensors");
      },
      [&] {  // there for a moment
        fs::create_symlink("../../secret/adapter_config.json", dir / "root/a/chat_template.jinja");
        fs::remove(dir / "root/a/chat_template.jinja");
      },
      [&] {
        fs::rename(dir / "root/a", dir / "root/a_old");
        dir.write("root/a/adapter_config.json", "inside a");
        dir.write("root/a/adapter_model.safetensors", "12345");
      },
      [&] {
        fs::remove_all(dir / "root/a");
        fs::create_symlink("../secret", dir / "root/a");
      }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    fs::remove_all(dir / "root/a");
    dir.write("root/a/adapter_config.json", "inside a");
    dir.write("root/a/adapter_model.safetensors", "12345");
    const auto folder = adapters->resolve("a");
    ASSERT_THAT(folder, Succeeds());
    EXPECT_THAT(folder->unchanged(), Succeeds());
    auto closed = adapters->resolve("a");
    ASSERT_THAT(closed, Succeeds());
    closed->close();
    EXPECT_THAT(closed->unchanged(), Succeeds());
    // Times of files have the grain of the kernel's clock.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    changes[i]();
    EXPECT_THAT(folder->unchanged(), FailsWith(Code::kConflict, "changed while it was read")) << i;
    EXPECT_THAT(closed->unchanged(), FailsWith(Code::kConflict, "changed while it was read")) << i;
  }
}

// Someone swaps the folder for a link out of the root, over and over. What is opened is always inside.
TEST_P(AdapterRootTest, SwappedWhileResolved) {
  fs::create_symlink("../secret", dir / "root/trap");
  std::atomic<bool> done{false};
  std::thread swapping([&] {
    while (!done) {
      ::renameat2(AT_FDCWD, (dir / "root/a").c_str(), AT_FDCWD, (dir / "root/trap").c_str(), RENAME_EXCHANGE);
    }
  });
  int opened = 0, refused = 0;
  for (int i = 0; i < 3'000; ++i) {
    const auto folder = adapters->resolve("a");
    if (!folder.ok()) {
      ++refused;
      continue;
    }
    ++opened;
    EXPECT_EQ(content(fs::path(folder->open_dir()) / "adapter_config.json"), "inside a");
  }
  done = true;
  swapping.join();
  EXPECT_EQ(opened + refused, 3'000);
}

TEST_P(AdapterRootTest, Scan) {
  fs::create_directories(dir / "root/not a name");
  const auto scan = adapters->scan();
  ASSERT_THAT(scan, Succeeds());
  std::vector<std::string> names;
  for (const auto& found : scan->adapters) {
    names.push_back(found.name);
    EXPECT_TRUE(found.dir.starts_with(root + "/"));
  }
  EXPECT_EQ(names,
            GetParam() ? (std::vector<std::string>{"a", "cached", "in", "in_deep"}) : (std::vector<std::string>{"a"}));
  std::string notes;
  for (const std::string& note : scan->notes) notes += note + "\n";
  for (const char* name : {"'empty'", "'leaky'", "'out'", "'not a name'", "'piped'", "'loop'"}) {
    EXPECT_NE(notes.find(name), std::string::npos) << name << "\n" << notes;
  }
  EXPECT_EQ(notes.find("hidden"), std::string::npos);
  EXPECT_EQ(notes.find("'file'"), std::string::npos);
  EXPECT_EQ(notes.find(dir.path().string()), std::string::npos);
}

TEST_P(AdapterRootTest, ScanIsBounded) {
  for (int i = 0; i < 150; ++i) {
    dir.write("root/x" + std::to_string(1000 + i) + "/adapter_config.json", "x");
    dir.write("root/y" + std::to_string(1000 + i) + "/other", "x");
  }
  reopen({.max_adapters = 20});
  auto scan = adapters->scan();
  ASSERT_THAT(scan, Succeeds());
  EXPECT_EQ(scan->adapters.size(), 20u);
  EXPECT_NE(scan->notes.back().find("more than 20 adapters"), std::string::npos);
  reopen({});
  scan = adapters->scan();
  EXPECT_GE(scan->adapters.size(), 151u);
  EXPECT_EQ(scan->notes.size(), 100u);
  EXPECT_NE(scan->notes.back().find("more notes"), std::string::npos);
  reopen({.max_entries = 5});
  scan = adapters->scan();
  EXPECT_LE(scan->adapters.size(), 5u);
  EXPECT_NE(scan->notes.back().find("more than 5 entries"), std::string::npos);
}

TEST(AdapterRoot, WrongRoots) {
  const TempDir dir;
  dir.write("file", "x");
  EXPECT_THAT(AdapterRoot::open(dir / "absent"), FailsWith(Code::kNotFound, "absent"));
  EXPECT_THAT(AdapterRoot::open(dir / "file"), FailsWith(Code::kInvalidArgument, "file"));
  EXPECT_THAT(AdapterRoot::open(""), FailsWith(Code::kNotFound, "folder ''"));
  EXPECT_THAT(AdapterRoot::open("/"), FailsWith(Code::kInvalidArgument, "holds adapters only"));
}

int open_descriptors() {
  int open = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++open;
  return open;
}

TEST(AdapterRoot, DescriptorsAreGivenBack) {
  const TempDir dir;
  dir.write("root/a/adapter_config.json", "x");
  const int before = open_descriptors();
  {
    const auto adapters = AdapterRoot::open(dir / "root");
    ASSERT_THAT(adapters, Succeeds());
    for (int i = 0; i < 50; ++i) {
      auto folder = adapters->resolve("a");
      ASSERT_THAT(folder, Succeeds());
      EXPECT_THAT(folder->unchanged(), Succeeds());
      auto moved = std::move(folder).value();
      EXPECT_THAT(moved.unchanged(), Succeeds());
      EXPECT_FALSE(adapters->resolve("absent").ok());
      EXPECT_FALSE(adapters->resolve("../a").ok());
      EXPECT_THAT(adapters->scan(), Succeeds());
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

// As a server keeps the folders of all its adapters.
TEST(AdapterRoot, ClosedFoldersHoldNoDescriptors) {
  const TempDir dir;
  constexpr int kFolders = 200;
  for (int i = 0; i < kFolders; ++i) dir.write("root/a" + std::to_string(i) + "/adapter_config.json", "x");
  const auto adapters = AdapterRoot::open(dir / "root");
  ASSERT_THAT(adapters, Succeeds());
  const int before = open_descriptors();
  std::vector<AdapterFolder> kept;
  for (int i = 0; i < kFolders; ++i) {
    auto folder = adapters->resolve("a" + std::to_string(i));
    ASSERT_THAT(folder, Succeeds());
    EXPECT_NE(folder->open_dir(), "");
    folder->close();
    EXPECT_EQ(folder->open_dir(), "");
    folder->close();
    kept.push_back(std::move(folder).value());
  }
  EXPECT_EQ(open_descriptors(), before);
  dir.write("root/a7/adapter_config.json", "changed");
  for (int i = 0; i < kFolders; ++i) {
    const AdapterFolder& folder = kept[static_cast<std::size_t>(i)];
    EXPECT_EQ(folder.name(), "a" + std::to_string(i));
    EXPECT_EQ(folder.bytes(), 1);
    EXPECT_EQ(folder.unchanged().ok(), i != 7);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace cadre::server
