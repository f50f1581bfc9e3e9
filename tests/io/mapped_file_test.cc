#include "io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

TEST(MappedFile, ReadsAndMoves) {
  TempDir dir;
  Result<MappedFile> file = MappedFile::open(dir.write("a", "hello"));
  ASSERT_THAT(file, Succeeds());
  EXPECT_EQ(text_of(*file), "hello");
  EXPECT_EQ(file->path(), (dir / "a").string());

  const std::byte* address = file->data();
  MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.data(), address);
  EXPECT_EQ(file->data(), nullptr);  // NOLINT: a moved-from map is empty
  EXPECT_EQ(file->size(), 0u);

  Result<MappedFile> other = MappedFile::open(dir.write("b", "other"));
  ASSERT_THAT(other, Succeeds());
  moved = std::move(*other);
  EXPECT_EQ(text_of(moved), "other");
}

TEST(MappedFile, DroppedPagesAreReadAgain) {
  TempDir dir;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::string content(page * 3 + 10, 'x');
  content[page] = 'y';
  content.back() = 'z';
  Result<MappedFile> file = MappedFile::open(dir.write("a", content));
  ASSERT_THAT(file, Succeeds());
  EXPECT_EQ(text_of(*file), content);
  for (std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{page}, file->size(), ~std::uint64_t{0}}) {
    for (std::uint64_t length : {std::uint64_t{0}, std::uint64_t{page}, file->size(), ~std::uint64_t{0}}) {
      file->drop_pages(offset, length);
      EXPECT_EQ(text_of(*file), content) << offset << " " << length;
    }
  }
}

TEST(MappedFile, Refusals) {
  TempDir dir;
  EXPECT_THAT(MappedFile::open(dir / "absent"), FailsWith(Code::kNotFound, "absent': No such file"));
  const auto file = dir.write("file", "content");
  EXPECT_THAT(MappedFile::open(file / "below"), FailsWith(Code::kNotFound, "Not a directory"));
  EXPECT_THAT(MappedFile::open(dir.path()), FailsWith(Code::kInvalidFile, "is a folder, want a regular file"));
  EXPECT_THAT(MappedFile::open(dir.write("empty", "")), FailsWith(Code::kInvalidFile, "empty' is empty"));
  EXPECT_THAT(MappedFile::open("/dev/null"), FailsWith(Code::kInvalidFile, "is a device"));
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(MappedFile::open(dir / "fifo"), FailsWith(Code::kInvalidFile, "is a FIFO"));  // and does not wait
  std::filesystem::create_symlink(dir / "loop", dir / "loop");
  EXPECT_THAT(MappedFile::open(dir / "loop"), FailsWith(Code::kInvalidFile, "symbolic links"));
  if (::geteuid() != 0) {  // root may read everything
    ASSERT_EQ(::chmod(file.c_str(), 0), 0);
    EXPECT_THAT(MappedFile::open(file), FailsWith(Code::kInvalidFile, "Permission denied"));
  }
}

TEST(ReadTextFile, WholeFileWithinTheLimit) {
  TempDir dir;
  const auto file = dir.write("a", "0123456789");
  const Result<std::string> text = read_text_file(file, 10);
  ASSERT_THAT(text, Succeeds());
  EXPECT_EQ(*text, "0123456789");
  EXPECT_THAT(read_text_file(file, 9), FailsWith(Code::kLimitExceeded, "has 10 bytes, want at most 9"));

  const Result<std::string> empty = read_text_file(dir.write("empty", ""), 10);
  ASSERT_THAT(empty, Succeeds());
  EXPECT_EQ(*empty, "");

  EXPECT_THAT(read_text_file(dir / "absent", 10), FailsWith(Code::kNotFound, "absent"));
  EXPECT_THAT(read_text_file(dir.path(), 10), FailsWith(Code::kInvalidFile, "is a folder"));
}

// Files of /proc say that they have 0 bytes, and have more.
TEST(ReadTextFile, SizeUnknownBeforehand) {
  const Result<std::string> text = read_text_file("/proc/self/status", 1 << 20);
  ASSERT_THAT(text, Succeeds());
  EXPECT_NE(text->find("VmPeak"), std::string::npos);
  EXPECT_THAT(read_text_file("/proc/self/status", 16), FailsWith(Code::kLimitExceeded, "more than 16 bytes"));
}

}  // namespace
}  // namespace cadre
