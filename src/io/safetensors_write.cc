// Writing safetensors files, complete or not at all.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <set>
#include <system_error>

#include "base/result.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace cadre {
namespace {

Status write_error(const std::string& path, const char* doing, int number) {
  const Code code = number == ENOENT || number == ENOTDIR  ? Code::kNotFound
                    : number == ENOSPC || number == EDQUOT ? Code::kLimitExceeded
                                                           : Code::kInvalidArgument;
  return error(code, "cannot ", doing, " '", path, "': ", std::generic_category().message(number));
}

// A file beside the one wanted, removed unless it was renamed into place.
class TemporaryFile {
 public:
  Status create(const std::filesystem::path& target) {
    static std::atomic<unsigned> counter{0};  // several threads may write the same file
    path_ = target.string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) return write_error(path_, "create", errno);
    exists_ = true;
    return {};
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (exists_) ::unlink(path_.c_str());
  }
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Status write(const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd_, at, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return write_error(path_, "write", errno);
      at += written;
      size -= static_cast<std::size_t>(written);
    }
    return {};
  }

  Status move_to(const std::filesystem::path& target) {
    if (::fsync(fd_) != 0) return write_error(path_, "sync", errno);
    if (::close(std::exchange(fd_, -1)) != 0) return write_error(path_, "close", errno);
    if (::rename(path_.c_str(), target.c_str()) != 0) return write_error(target.string(), "write", errno);
    exists_ = false;
    // The new name survives a power cut only once the folder is synced; not every file system can, so a failure is no
    // error.
    const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
    if (const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); folder_fd >= 0) {
      (void)::fsync(folder_fd);
      ::close(folder_fd);
    }
    return {};
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool exists_ = false;
};

Status check_tensor(const NamedTensor& tensor, std::set<std::string_view>& names) {
  const auto bad = [&](const auto&... parts) {
    return error(Code::kInvalidArgument, "tensor '", tensor.name, "' ", parts...);
  };
  if (tensor.name == "__metadata__") return bad("has a name that safetensors reserves");
  if (!names.insert(tensor.name).second) return bad("is given twice");
  std::uint64_t bits = static_cast<std::uint64_t>(dtype_bits(tensor.dtype));
  for (std::int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(size), &bits)) {
      return bad("has shape ", shape_text(tensor.shape), ", which is not a size");
    }
  }
  if (bits % 8 != 0 || bits / 8 != tensor.data.size()) {
    return bad("has ", tensor.data.size(), " bytes of data, want ", bits, " bits for ",
               dtype_safetensors_name(tensor.dtype), " ", shape_text(tensor.shape));
  }
  return {};
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata) {
  std::set<std::string_view> names;
  std::vector<const NamedTensor*> ordered;
  for (const NamedTensor& tensor : tensors) {
    CADRE_TRY(check_tensor(tensor, names));
    ordered.push_back(&tensor);
  }
  // The tensors lie in one array, so their addresses give the order they came in.
  std::sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const int bits_a = dtype_bits(a->dtype);
    const int bits_b = dtype_bits(b->dtype);
    return bits_a != bits_b ? bits_a > bits_b : a < b;
  });

  std::vector<Json::Member> entries;
  if (!metadata.empty()) {
    std::vector<Json::Member> fields;
    for (const auto& [key, value] : metadata) fields.emplace_back(key, value);
    entries.emplace_back("__metadata__", Json::object(std::move(fields)));
  }
  std::uint64_t offset = 0;
  for (const NamedTensor* tensor : ordered) {
    const std::uint64_t end = offset + tensor->data.size();
    entries.emplace_back(tensor->name, Json::object({{"dtype", dtype_safetensors_name(tensor->dtype)},
                                                     {"shape", Json::array(tensor->shape)},
                                                     {"data_offsets", Json::array({offset, end})}}));
    offset = end;
  }
  std::string header = Json::object(std::move(entries)).dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of 8 bytes
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff);

  TemporaryFile file;
  CADRE_TRY(file.create(path));
  CADRE_TRY(file.write(length.data(), length.size()));
  CADRE_TRY(file.write(header.data(), header.size()));
  for (const NamedTensor* tensor : ordered) CADRE_TRY(file.write(tensor->data.data(), tensor->data.size()));
  return file.move_to(path);
}

}  // namespace cadre
