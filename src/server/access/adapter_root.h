// The folder that adapters may be loaded from at run time, `--adapter-dir ROOT`, and nothing outside it.
//
// Paths come from requests. They are relative to the root, or absolute and begin with it; `..`, hidden folders, control
// characters and NUL are refused before the system sees them. The folder is then opened from the root's own descriptor
// by openat2 with RESOLVE_BENEATH: the kernel resolves every link on the way and fails where one leaves the root, in
// the same call that opens, so that swapping a folder for a link between a check and its use gains nothing. Links that
// stay inside are followed, as in a Hugging Face cache. Where the kernel has no openat2 (before 5.6, or a filter of
// system calls), each part is opened without following links, so links are refused altogether.
//
// The engine reads files by name, so two things are offered for the time after the check: `open_dir` names the opened
// folder itself, whatever its name means by then, and `unchanged` says after reading whether the files are still those
// that were checked, then and any time later, with the folder still open or not. Whoever can write below the root at
// any moment can still change what an adapter answers; they cannot make the server read elsewhere unnoticed.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::server {

struct AdapterRootOptions {
  std::int64_t max_bytes = std::int64_t{16} << 30;  // of one adapter's files
  int max_files = 1'000;                            // in one adapter's folder
  int max_adapters = 4'096;                         // found by a scan
  int max_entries = 65'536;                         // looked at by a scan
  bool use_openat2 = true;                          // false: as on a kernel without it
};

// An adapter's folder that was checked. Movable; holds the folder open until close() or its end.
class AdapterFolder {
 public:
  AdapterFolder(AdapterFolder&&) noexcept;
  AdapterFolder& operator=(AdapterFolder&&) noexcept;
  ~AdapterFolder();

  const std::string& name() const { return name_; }  // the folder's own
  // The real path, for the operator's eyes and for reading again later.
  const std::string& dir() const { return dir_; }
  // "/proc/self/fd/N": the folder that was checked, as long as it is open; empty after close().
  std::string open_dir() const;
  // Lets go of the folder, for those who are kept long after reading: many of them need no descriptors.
  void close();
  std::int64_t bytes() const { return bytes_; }
  // Not ok if the folder or a file in it is not the one that was checked. Opens the folder again from the root, with
  // all the checks of the first time, and closes it; so it answers the same after close().
  Status unchanged() const;

 private:
  friend class AdapterRoot;
  struct File {
    std::string name;
    std::uint64_t device = 0, inode = 0;
    std::int64_t bytes = 0, changed_ns = 0;
    bool operator==(const File&) const = default;
  };
  struct Root;
  AdapterFolder() = default;
  static Result<AdapterFolder> open(const std::shared_ptr<const Root>& root, const std::string& relative,
                                    std::string_view asked);

  std::shared_ptr<const Root> root_;
  std::string relative_, name_, dir_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  std::vector<File> files_;  // sorted; first, without a name, the folder itself
};

class AdapterRoot {
 public:
  static Result<AdapterRoot> open(const std::string& dir, const AdapterRootOptions& options = {});

  // Messages name what was asked for, never where the root is.
  Result<AdapterFolder> resolve(std::string_view path) const;

  struct Found {
    std::string name;
    std::string dir;
  };
  struct Scan {
    std::vector<Found> adapters;     // sorted by name
    std::vector<std::string> notes;  // what was passed over, and why; at most 100
  };
  // The folders directly in the root that hold an adapter.
  Result<Scan> scan() const;
  std::string path() const;  // of the root, real

 private:
  explicit AdapterRoot(std::shared_ptr<const AdapterFolder::Root> root) : root_(std::move(root)) {}
  std::shared_ptr<const AdapterFolder::Root> root_;
};

}  // namespace cadre::server
