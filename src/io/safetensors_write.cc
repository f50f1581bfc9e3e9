// Writing safetensors files, complete or not at all.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <system_error>
#include <utility>

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

}  // namespace

// A file beside the one wanted, removed unless it was renamed into place.
class SafetensorsWriter::TemporaryFile {
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

namespace {

Status check_entry(const SafetensorsWriter::Entry& tensor, std::set<std::string_view>& names) {
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
  if (bits % 8 != 0 || bits / 8 != tensor.nbytes) {
    return bad("has ", tensor.nbytes, " bytes of data, want ", bits, " bits for ", dtype_safetensors_name(tensor.dtype),
               " ", shape_text(tensor.shape));
  }
  return {};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter() : file_(std::make_unique<TemporaryFile>()) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::open(const std::filesystem::path& path, std::span<const Entry> entries,
                                                  std::span<const std::pair<std::string, std::string>> metadata) {
  SafetensorsWriter writer;
  writer.path_ = path;
  std::set<std::string_view> names;
  for (const Entry& entry : entries) {
    CADRE_TRY(check_entry(entry, names));
    writer.order_.push_back(writer.order_.size());
  }
  std::sort(writer.order_.begin(), writer.order_.end(), [&](std::size_t a, std::size_t b) {
    const int bits_a = dtype_bits(entries[a].dtype);
    const int bits_b = dtype_bits(entries[b].dtype);
    return bits_a != bits_b ? bits_a > bits_b : a < b;
  });

  std::vector<Json::Member> members;
  if (!metadata.empty()) {
    std::vector<Json::Member> fields;
    for (const auto& [key, value] : metadata) fields.emplace_back(key, value);
    members.emplace_back("__metadata__", Json::object(std::move(fields)));
  }
  std::uint64_t offset = 0;
  for (const std::size_t i : writer.order_) {
    const Entry& entry = entries[i];
    const std::uint64_t end = offset + entry.nbytes;
    members.emplace_back(entry.name, Json::object({{"dtype", dtype_safetensors_name(entry.dtype)},
                                                   {"shape", Json::array(entry.shape)},
                                                   {"data_offsets", Json::array({offset, end})}}));
    offset = end;
  }
  writer.left_ = offset;
  std::string header = Json::object(std::move(members)).dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of 8 bytes
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff);

  CADRE_TRY(writer.file_->create(path));
  CADRE_TRY(writer.file_->write(length.data(), length.size()));
  CADRE_TRY(writer.file_->write(header.data(), header.size()));
  return writer;
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > left_) {
    return error(Code::kInternal, path_.string(), ": ", bytes.size() - left_, " bytes more than its header says");
  }
  left_ -= bytes.size();
  return file_->write(bytes.data(), bytes.size());
}

Status SafetensorsWriter::finish() {
  if (left_ > 0) return error(Code::kInternal, path_.string(), ": ", left_, " bytes fewer than its header says");
  return file_->move_to(path_);
}

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const NamedTensor& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data.size()});
  }
  CADRE_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::open(path, entries, metadata));
  for (const std::size_t i : writer.order()) CADRE_TRY(writer.write(tensors[i].data));
  return writer.finish();
}

}  // namespace cadre
