#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/result.h"

namespace cadre {
namespace {

std::string errno_text(int number) { return std::generic_category().message(number); }

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Opens without waiting (a FIFO without a writer would block for ever) and refuses what is not a regular file. On
// success `fd` is open and the file's size is returned.
Result<std::uint64_t> open_regular(const std::string& path, int* fd) {
  *fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (*fd < 0) {
    const int number = errno;
    const bool absent = number == ENOENT || number == ENOTDIR;
    return error(absent ? Code::kNotFound : Code::kInvalidFile, "cannot open '", path, "': ", errno_text(number));
  }
  struct stat info{};
  Status failure;
  if (::fstat(*fd, &info) != 0) {
    failure = error(Code::kInvalidFile, "cannot examine '", path, "': ", errno_text(errno));
  } else if (!S_ISREG(info.st_mode)) {
    failure = error(Code::kInvalidFile, "'", path, "' is ", kind_of(info.st_mode), ", want a regular file");
  }
  if (failure.ok()) return static_cast<std::uint64_t>(info.st_size);
  ::close(*fd);
  *fd = -1;
  return failure;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.path_ = path.string();
  int raw_fd = -1;
  CADRE_ASSIGN(const std::uint64_t size, open_regular(file.path_, &raw_fd));
  const FileDescriptor fd(raw_fd);
  if (size == 0) return error(Code::kInvalidFile, "'", file.path_, "' is empty");
  // The map keeps the file; the descriptor is closed, so that many shards do not use up the descriptor limit.
  void* address = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) {
    const int number = errno;
    return error(number == ENOMEM ? Code::kOutOfMemory : Code::kInvalidFile, "cannot map '", file.path_, "' (", size,
                 " bytes): ", errno_text(number));
  }
  file.data_ = static_cast<const std::byte*>(address);
  file.size_ = size;
  file.backed_ = true;
  return file;
}

Result<MappedFile> MappedFile::read(const std::filesystem::path& path) {
  MappedFile file;
  file.path_ = path.string();
  int raw_fd = -1;
  CADRE_ASSIGN(const std::uint64_t size, open_regular(file.path_, &raw_fd));
  const FileDescriptor fd(raw_fd);
  if (size == 0) return error(Code::kInvalidFile, "'", file.path_, "' is empty");
  void* address =
      ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return error(Code::kOutOfMemory, "no memory for the ", size, " bytes of '", file.path_, "'");
  }
  file.data_ = static_cast<const std::byte*>(address);
  file.size_ = size;
  for (std::uint64_t filled = 0;;) {
    char beyond = 0;  // one byte more is asked for, to see a file that grows
    const bool full = filled == size;
    char* to = full ? &beyond : static_cast<char*>(address) + filled;
    const ssize_t got = ::read(fd.get(), to, full ? 1 : static_cast<std::size_t>(size - filled));
    if (got < 0) {
      if (errno == EINTR) continue;
      return error(Code::kInvalidFile, "cannot read '", file.path_, "': ", errno_text(errno));
    }
    if (got > 0 && !full) {
      filled += static_cast<std::uint64_t>(got);
      continue;
    }
    if (got == 0 && full) return file;
    return error(Code::kInvalidFile, "'", file.path_, "' changed while it was read: it had ", size, " bytes, then ",
                 full ? "more" : std::to_string(filled), "; write a new folder and rename it into place");
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      backed_(other.backed_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(backed_, other.backed_);
  return *this;
}

void MappedFile::drop_pages(std::uint64_t offset, std::uint64_t length) const {
  if (offset >= size_ || !backed_) return;
  const std::uint64_t end_wanted = offset + std::min(length, size_ - offset);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // Pages shared with a neighbour stay, unless the neighbour is the end of the file.
  const std::uint64_t begin = (offset + page - 1) / page * page;
  const std::uint64_t end = end_wanted == size_ ? size_ : end_wanted / page * page;
  if (begin >= end) return;
  // Only advice: a failure changes nothing but the memory held.
  (void)::madvise(const_cast<std::byte*>(data_) + begin, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const std::string name = path.string();
  int raw_fd = -1;
  CADRE_ASSIGN(const std::uint64_t size, open_regular(name, &raw_fd));
  const FileDescriptor fd(raw_fd);
  if (size > max_bytes) {
    return error(Code::kLimitExceeded, "'", name, "' has ", size, " bytes, want at most ", max_bytes);
  }
  // Reads to the end rather than `size` bytes: the file may grow or shrink meanwhile.
  std::string text;
  constexpr std::size_t kChunk = 1 << 20;
  std::size_t filled = 0;
  text.resize(static_cast<std::size_t>(size) + 1);
  while (true) {
    if (filled == text.size()) text.resize(filled + kChunk);
    const ssize_t got = ::read(fd.get(), text.data() + filled, text.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      return error(Code::kInvalidFile, "cannot read '", name, "': ", errno_text(errno));
    }
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > max_bytes) {
      return error(Code::kLimitExceeded, "'", name, "' has more than ", max_bytes, " bytes, the most that is read");
    }
  }
  text.resize(filled);
  return text;
}

}  // namespace cadre
