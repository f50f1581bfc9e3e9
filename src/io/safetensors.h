// The safetensors format, read from a memory map and written.
//
//   8 bytes   header length n, unsigned little-endian
//   n bytes   a JSON object, padded with spaces: tensor name -> {"dtype": "BF16", "shape": [out, in],
//             "data_offsets": [begin, end]}, and optionally "__metadata__" -> {string: string}
//   the rest  the tensors' elements, little-endian, row-major; offsets count from here
//
// The tensors must cover the rest exactly: no gap, no overlap.
#pragma once

#include <cadre/status.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "io/mapped_file.h"

namespace cadre {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // empty for a scalar
  const std::byte* data = nullptr;  // in the mapped file
  std::uint64_t nbytes = 0;
  std::shared_ptr<const std::string> file;  // the path of the file that holds it

  std::int64_t elements() const;  // the product of the shape; fits, since it was checked against the file's size
  // Whether `data` may be read through a pointer to the element type. A file whose header is not padded holds tensors
  // at odd addresses; those must be copied.
  bool is_aligned() const;
  std::span<const std::byte> bytes() const { return {data, static_cast<std::size_t>(nbytes)}; }
};
// "BF16 [16, 64]", for messages.
std::string describe(const TensorInfo& tensor);
std::string shape_text(std::span<const std::int64_t> shape);  // "[16, 64]"

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // ordered by offset
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Checks everything about the file but the elements' values. `bytes` is the whole file, `name` its path in messages and
// in TensorInfo::file; the tensors point into `bytes`.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

// An open file. Shared, because tensors lent from it need it open.
class SafetensorsFile {
 public:
  static Result<std::shared_ptr<SafetensorsFile>> open(const std::filesystem::path& path);
  // The same from a copy in memory, see MappedFile::read.
  static Result<std::shared_ptr<SafetensorsFile>> read(const std::filesystem::path& path);

  const std::string& path() const { return file_.path(); }
  std::uint64_t file_bytes() const { return file_.size(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }  // ordered by offset
  const TensorInfo* find(std::string_view name) const;                        // nullptr if there is none
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return header_.metadata; }

  // The tensor's pages are not needed for now; see MappedFile::drop_pages. `tensor` must be of this file.
  void drop_pages(const TensorInfo& tensor) const;

 private:
  static Result<std::shared_ptr<SafetensorsFile>> parse(MappedFile file);
  SafetensorsFile(MappedFile file, SafetensorsHeader header);

  MappedFile file_;
  SafetensorsHeader header_;
  std::vector<std::uint32_t> by_name_;  // indices into tensors, sorted by name
};

// Writes a file whose elements come piece by piece, so that it may be larger than memory. The file appears under its
// name complete or not at all: it is written beside it, synced and renamed by `finish`.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;
    std::uint64_t nbytes = 0;
  };
  // Writes the header. The elements are wanted in the order of `order`: widest first, so that all are aligned,
  // otherwise as given.
  static Result<SafetensorsWriter> open(const std::filesystem::path& path, std::span<const Entry> entries,
                                        std::span<const std::pair<std::string, std::string>> metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();  // without finish: the file is removed

  const std::vector<std::size_t>& order() const { return order_; }  // indices into entries
  Status write(std::span<const std::byte> bytes);
  // Refuses a file that got fewer or more bytes than its header says.
  Status finish();

 private:
  class TemporaryFile;
  SafetensorsWriter();

  std::filesystem::path path_;
  std::vector<std::size_t> order_;
  std::unique_ptr<TemporaryFile> file_;
  std::uint64_t left_ = 0;
};

struct NamedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// Writes tensors that are in memory.
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace cadre
