// Files read as a whole: a read-only memory map, and a bounded read of a text file.
#pragma once

#include <cadre/status.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace cadre {

// A read-only map of a regular, non-empty file. Move-only; the address is stable for its life, so share it through a
// shared_ptr. A file that someone truncates while it is mapped raises SIGBUS on access, as with every memory map.
class MappedFile {
 public:
  // kNotFound if nothing is there; kInvalidFile for what cannot be mapped: a folder, a FIFO or device, an empty file, a
  // file that may not be read.
  static Result<MappedFile> open(const std::filesystem::path& path);
  // The same face on a copy in memory: whatever happens to the file later changes nothing. A file that changes its size
  // while it is read is refused.
  static Result<MappedFile> read(const std::filesystem::path& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  const std::byte* data() const { return data_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }

  // Tells the system that the whole pages inside [offset, offset + length) are not needed for now; they are read from
  // the file again when touched. Ranges beyond the end are cut.
  void drop_pages(std::uint64_t offset, std::uint64_t length) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  bool backed_ = false;  // by the file: dropped pages come back
};

// The content of a regular file of at most max_bytes (kLimitExceeded above). An empty file gives an empty string.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace cadre
