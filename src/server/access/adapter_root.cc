#include "server/access/adapter_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "base/result.h"
#include "server/access/names.h"

namespace cadre::server {
namespace {

constexpr std::size_t kMaxPath = 1'024;
constexpr int kMaxParts = 16;
constexpr std::size_t kMaxNotes = 100;
constexpr std::string_view kConfig = "adapter_config.json";

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Opened without reading: enough to look at, to name and to open from. On failure errno says why.
Descriptor open_beneath(int root, const std::string& relative, bool folder, bool use_openat2) {
  const int flags = O_PATH | O_CLOEXEC | (folder ? O_DIRECTORY : 0);
  // Known for the whole process once it is known.
  static std::atomic<bool> has_openat2{true};
  if (use_openat2 && has_openat2.load(std::memory_order_relaxed)) {
    struct open_how how{};
    how.flags = static_cast<std::uint64_t>(flags);
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    // EAGAIN: something was renamed meanwhile and the kernel cannot be sure.
    for (int attempt = 0; attempt < 64; ++attempt) {
      const long fd = ::syscall(SYS_openat2, root, relative.c_str(), &how, sizeof how);
      if (fd >= 0) return Descriptor(static_cast<int>(fd));
      if (errno != EAGAIN && errno != EINTR) break;
    }
    if (errno != ENOSYS && errno != EPERM) return Descriptor();
    has_openat2.store(false, std::memory_order_relaxed);
  }
  Descriptor at(::fcntl(root, F_DUPFD_CLOEXEC, 0));
  for (std::size_t begin = 0; at.get() >= 0 && begin < relative.size();) {
    const std::size_t end = std::min(relative.find('/', begin), relative.size());
    const bool last = end == relative.size();
    const int how = O_PATH | O_CLOEXEC | O_NOFOLLOW | (last && !folder ? 0 : O_DIRECTORY);
    Descriptor next(::openat(at.get(), relative.substr(begin, end - begin).c_str(), how));
    at = std::move(next);
    begin = end + 1;
  }
  // With O_PATH a link at the end is opened itself.
  struct stat info{};
  if (at.get() >= 0 && ::fstat(at.get(), &info) == 0 && S_ISLNK(info.st_mode)) {
    errno = ELOOP;
    return Descriptor();
  }
  return at;
}

// The real path of what is open; empty where the system does not say.
std::string path_of(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  std::array<char, 4'096> path{};
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  if (size <= 0 || size == static_cast<ssize_t>(path.size()) || path[0] != '/') return "";
  return std::string(path.data(), static_cast<std::size_t>(size));
}

// A path of a request as parts joined by single slashes, relative to the root.
Result<std::string> relative_path(std::string_view path, const std::vector<std::string>& roots) {
  const std::string name = shown(path);
  const auto refuse = [&](std::string_view why) {
    return error(Code::kInvalidArgument, "adapter path '", name, "' ", why);
  };
  if (path.empty()) return refuse("is empty, want a folder inside the adapter folder of the server");
  if (path.size() > kMaxPath) return refuse("is too long");
  if (std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return refuse("has a control character");
  }
  if (path[0] == '/') {
    bool inside = false;
    for (const std::string& root : roots) {
      if (inside || !path.starts_with(root) || path.size() == root.size() || path[root.size()] != '/') continue;
      path.remove_prefix(root.size() + 1);
      inside = true;
    }
    if (!inside) return refuse("is outside the adapter folder of the server, want one inside it, best relative to it");
  }
  std::string relative;
  int parts = 0;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return refuse("has '..', want a path inside the adapter folder of the server");
    if (part[0] == '.') return refuse("has a hidden folder");
    if (part.size() > 255) return refuse("is too long");
    if (++parts > kMaxParts) return refuse("is too deep");
    if (!relative.empty()) relative += '/';
    relative += part;
  }
  if (relative.empty()) return refuse("is the adapter folder of the server itself, want a folder inside it");
  return relative;
}

Status open_failed(std::string_view asked, int number) {
  const std::string name = "adapter path '" + shown(asked) + "' ";
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      return error(Code::kNotFound, name, "is no folder inside the adapter folder of the server");
    case EXDEV:
    case ELOOP:
      return error(Code::kInvalidArgument, name, "is a link that leaves the adapter folder of the server");
    default:
      return error(Code::kInvalidFile, name, "cannot be opened: ", std::strerror(number));
  }
}

// When a file's content, links or rights last changed. Unlike the time of modification it cannot be set.
std::int64_t changed_ns(const struct stat& info) {
  return std::int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
}

// Calls `each` with every name in a folder until it returns false. The descriptor may be of O_PATH.
bool list(int fd, const std::function<bool(const char*)>& each) {
  const int readable = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (readable < 0) return false;
  DIR* dir = ::fdopendir(readable);
  if (dir == nullptr) {
    ::close(readable);
    return false;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {  // NOLINT(concurrency-mt-unsafe): this stream is ours alone
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && !each(entry->d_name)) break;
    errno = 0;
  }
  const int number = errno;
  ::closedir(dir);
  errno = number;
  return number == 0;
}

}  // namespace

struct AdapterFolder::Root {
  Descriptor fd;
  std::string given;  // as the operator wrote it, made absolute
  AdapterRootOptions options;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (std::string name : {path_of(fd.get()), given}) {
      while (name.size() > 1 && name.back() == '/') name.pop_back();
      if (name.size() > 1) names.push_back(std::move(name));
    }
    return names;
  }
};

AdapterFolder::AdapterFolder(AdapterFolder&& other) noexcept { *this = std::move(other); }

AdapterFolder& AdapterFolder::operator=(AdapterFolder&& other) noexcept {
  root_.swap(other.root_);
  relative_.swap(other.relative_);
  name_.swap(other.name_);
  dir_.swap(other.dir_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  files_.swap(other.files_);
  return *this;
}

AdapterFolder::~AdapterFolder() { close(); }

void AdapterFolder::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string AdapterFolder::open_dir() const { return fd_ < 0 ? "" : "/proc/self/fd/" + std::to_string(fd_); }

Result<AdapterFolder> AdapterFolder::open(const std::shared_ptr<const Root>& root, const std::string& relative,
                                          std::string_view asked) {
  const AdapterRootOptions& options = root->options;
  AdapterFolder folder;
  folder.root_ = root;
  folder.relative_ = relative;
  folder.name_ = relative.substr(relative.rfind('/') + 1);
  Descriptor fd = open_beneath(root->fd.get(), relative, true, options.use_openat2);
  if (fd.get() < 0) return open_failed(asked, errno);
  folder.fd_ = fd.release();
  // Taken before the files, so that a file that comes or goes meanwhile shows.
  struct stat self{};
  if (::fstat(folder.fd_, &self) != 0) return open_failed(asked, errno);
  folder.files_.push_back({"", self.st_dev, self.st_ino, 0, changed_ns(self)});
  folder.dir_ = path_of(folder.fd_);
  const std::string top = path_of(root->fd.get());
  // Links inside the folder are followed from where it really is.
  const std::string prefix = top == "/" ? top : top + "/";
  if (top.empty() || !folder.dir_.starts_with(prefix)) return open_failed(asked, ENOENT);
  const std::string real = folder.dir_.substr(prefix.size());

  const std::string what = "adapter path '" + shown(asked) + "'";
  Status status;
  bool has_config = false;
  int seen = 0;
  const bool listed = list(folder.fd_, [&](const char* name) {
    if (++seen > options.max_files) {
      status = error(Code::kLimitExceeded, what, " has more than ", options.max_files, " files");
      return false;
    }
    struct stat info{};
    if (::fstatat(folder.fd_, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return true;  // gone meanwhile
    if (S_ISDIR(info.st_mode)) return true;
    if (S_ISLNK(info.st_mode)) {
      const Descriptor target = open_beneath(root->fd.get(), real + "/" + name, false, options.use_openat2);
      if (target.get() < 0 || ::fstat(target.get(), &info) != 0) {
        status = error(Code::kInvalidArgument, what, ": '", shown(name),
                       "' is a link that leads nowhere or out of the adapter folder of the server");
        return false;
      }
      if (S_ISDIR(info.st_mode)) return true;
    }
    if (!S_ISREG(info.st_mode)) {
      status = error(Code::kInvalidArgument, what, ": '", shown(name), "' is no regular file");
      return false;
    }
    // Sizes are below 2^63, so a sum that is checked each time cannot overflow.
    if (info.st_size > options.max_bytes - folder.bytes_) {
      status = error(Code::kLimitExceeded, what, " is larger than ", options.max_bytes, " bytes");
      return false;
    }
    folder.bytes_ += info.st_size;
    has_config = has_config || name == kConfig;
    folder.files_.push_back({name, info.st_dev, info.st_ino, info.st_size, changed_ns(info)});
    return true;
  });
  const int number = errno;
  CADRE_TRY(status);
  if (!listed) return error(Code::kInvalidFile, what, " cannot be read: ", std::strerror(number));
  if (!has_config) return error(Code::kNotFound, what, " holds no ", kConfig);
  std::sort(folder.files_.begin(), folder.files_.end(), [](const File& a, const File& b) { return a.name < b.name; });
  return folder;
}

Status AdapterFolder::unchanged() const {
  Status changed(Code::kConflict, "adapter '" + shown(name_) + "' changed while it was read; load it again");
  Result<AdapterFolder> again = open(root_, relative_, relative_);
  if (!again.ok()) return changed;
  // The folder itself is among the files. Its number may be given to another once it is closed and gone, but not with
  // the same time of change.
  return files_ == again->files_ ? Status() : changed;
}

Result<AdapterRoot> AdapterRoot::open(const std::string& dir, const AdapterRootOptions& options) {
  Descriptor fd(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) {
    const int number = errno;
    return error(number == ENOENT ? Code::kNotFound : Code::kInvalidArgument, "folder '", dir,
                 "': ", std::strerror(number));
  }
  const std::string real = path_of(fd.get());
  if (real.empty()) return error(Code::kUnsupported, "an adapter folder needs /proc, which is not mounted here");
  if (real == "/")
    return error(Code::kInvalidArgument, "folder '/' is the whole machine, want one that holds adapters only");
  auto root = std::make_shared<AdapterFolder::Root>();
  root->fd = std::move(fd);
  root->given = dir.starts_with('/') ? dir : "";
  root->options = options;
  return AdapterRoot(std::move(root));
}

Result<AdapterFolder> AdapterRoot::resolve(std::string_view path) const {
  CADRE_ASSIGN(const std::string relative, relative_path(path, root_->names()));
  return AdapterFolder::open(root_, relative, path);
}

Result<AdapterRoot::Scan> AdapterRoot::scan() const {
  Scan scan;
  std::size_t untold = 0;
  const auto note = [&](std::string text) {
    if (scan.notes.size() + 1 < kMaxNotes) {
      scan.notes.push_back(std::move(text));
    } else {
      ++untold;
    }
  };
  std::vector<std::string> names;
  int seen = 0;
  bool all = true;
  const bool listed = list(root_->fd.get(), [&](const char* name) {
    if (++seen > root_->options.max_entries) return all = false;
    // Hidden folders are where others put what is not finished.
    if (name[0] == '.') return true;
    struct stat info{};
    if (::fstatat(root_->fd.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) return true;
    if (S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode)) names.emplace_back(name);
    return true;
  });
  if (!listed && all) {
    return error(Code::kInvalidFile, "the adapter folder cannot be read: ", std::strerror(errno));
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!is_name(name)) {
      note("folder '" + shown(name) + "': is no name for an adapter, want 1 to 128 of A-Z a-z 0-9 . _ -");
      continue;
    }
    if (scan.adapters.size() == static_cast<std::size_t>(std::max(0, root_->options.max_adapters))) {
      note("folder '" + name + "' and those after it: more than " + std::to_string(root_->options.max_adapters) +
           " adapters");
      break;
    }
    Result<AdapterFolder> folder = AdapterFolder::open(root_, name, name);
    if (!folder.ok()) {
      note(folder.status().message());
      continue;
    }
    scan.adapters.push_back({name, folder->dir()});
  }
  if (!all) note("the adapter folder has more than " + std::to_string(root_->options.max_entries) + " entries");
  if (untold > 0) scan.notes.push_back("and " + std::to_string(untold) + " more notes");
  return scan;
}

std::string AdapterRoot::path() const { return path_of(root_->fd.get()); }

}  // namespace cadre::server
