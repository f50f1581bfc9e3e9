#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/result.h"
#include "io/json.h"

namespace cadre {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's reference implementation
constexpr std::size_t kMaxRank = 32;
constexpr std::string_view kGitLfsStart = "version https://git-lfs";

std::string quote(std::string_view text) { return describe(Json(text)); }

// a * b, or nothing if it does not fit.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// An integer written as one (not 2.0) and not negative.
bool read_size(const Json& value, std::uint64_t* out) {
  if (!value.is_int()) return false;
  const Result<std::int64_t> number = value.as_int("", 0);
  if (!number.ok()) return false;
  *out = static_cast<std::uint64_t>(*number);
  return true;
}

// Shape and type give the bytes the tensor must have.
Status check_size(const std::string& where, const TensorInfo& tensor) {
  std::optional<std::uint64_t> bits = static_cast<std::uint64_t>(dtype_bits(tensor.dtype));
  const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
  for (std::int64_t size : tensor.shape) {
    if (bits && !empty) bits = product(*bits, static_cast<std::uint64_t>(size));
  }
  if (empty) bits = 0;
  if (!bits) return error(Code::kInvalidFile, where, " has shape ", shape_text(tensor.shape), ", which overflows");
  if (*bits % 8 != 0) {
    return error(Code::kInvalidFile, where, " (", describe(tensor), ") ends inside a byte");
  }
  if (*bits / 8 != tensor.nbytes) {
    return error(Code::kInvalidFile, where, " (", describe(tensor), ") has ", tensor.nbytes, " bytes of data, want ",
                 *bits / 8);
  }
  return {};
}

// One entry of the header: dtype, shape and place, all checked but for the neighbours.
Result<TensorInfo> read_entry(const std::string& where, const Json& entry, std::span<const std::byte> data) {
  const auto bad = [&](const auto&... parts) { return error(Code::kInvalidFile, where, parts...); };
  if (!entry.is_object()) return bad(" is ", describe(entry), ", want an object");
  for (const auto& [key, value] : entry.members()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") return bad(" has an unknown key ", quote(key));
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (entry.find(key) == nullptr) return bad(" has no '", key, "'");
  }

  TensorInfo tensor;
  const Json& dtype = *entry.find("dtype");
  CADRE_ASSIGN(const std::string dtype_text, dtype.as_string(where + " has a dtype that"));
  const std::optional<DType> known = dtype_from_safetensors(dtype_text);
  if (!known) return bad(" has dtype ", describe(dtype), ", which is not a safetensors type this version knows");
  tensor.dtype = *known;

  const Json& shape = *entry.find("shape");
  if (!shape.is_array()) return bad(" has a shape that is ", describe(shape), ", want an array of sizes");
  if (shape.items().size() > kMaxRank) {
    return bad(" has ", shape.items().size(), " dimensions, want at most ", kMaxRank);
  }
  for (const Json& item : shape.items()) {
    std::uint64_t size = 0;
    if (!read_size(item, &size)) return bad(" has ", describe(item), " in its shape, want an integer of at least 0");
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  }

  const Json& offsets = *entry.find("data_offsets");
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (offsets.items().size() != 2 || !read_size(offsets.items()[0], &begin) || !read_size(offsets.items()[1], &end)) {
    return bad(" has data_offsets ", offsets.is_array() ? offsets.dump().substr(0, 60) : describe(offsets),
               ", want two integers [begin, end]");
  }
  if (begin > end) return bad(" begins at ", begin, " and ends before, at ", end);
  if (end > data.size()) {
    return bad(" ends at byte ", end, " of the data, which has ", data.size(), "; the file is cut off or damaged");
  }
  tensor.data = data.data() + begin;
  tensor.nbytes = end - begin;
  CADRE_TRY(check_size(where, tensor));
  return tensor;
}

// The tensors, ordered by place, cover the data without gap and overlap.
Status check_cover(const std::string& file, const std::vector<TensorInfo>& tensors, std::span<const std::byte> data) {
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto begin = static_cast<std::uint64_t>(tensors[i].data - data.data());
    if (begin < covered) {
      return error(Code::kInvalidFile, file, ": tensors ", quote(tensors[i - 1].name), " and ", quote(tensors[i].name),
                   " overlap at byte ", begin, " of the data");
    }
    if (begin > covered) {
      return error(Code::kInvalidFile, file, ": ", begin - covered, " bytes of the data before tensor ",
                   quote(tensors[i].name), " belong to no tensor");
    }
    covered = begin + tensors[i].nbytes;
  }
  if (covered != data.size()) {
    return error(Code::kInvalidFile, file, ": the last ", data.size() - covered,
                 " bytes of the data belong to no tensor");
  }
  return {};
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

std::string describe(const TensorInfo& tensor) {
  return std::string(dtype_safetensors_name(tensor.dtype)) + " " + shape_text(tensor.shape);
}

std::int64_t TensorInfo::elements() const {
  if (nbytes == 0) return 0;
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool TensorInfo::is_aligned() const {
  const auto size = static_cast<std::uintptr_t>(dtype_bits(dtype) / 8);
  return size <= 1 || reinterpret_cast<std::uintptr_t>(data) % size == 0;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  const std::string file(name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kGitLfsStart)) {
    return error(Code::kInvalidFile, file,
                 ": is a Git LFS pointer, not the file itself; run 'git lfs pull' in its repository");
  }
  if (bytes.size() < kLengthBytes) {
    return error(Code::kInvalidFile, file, ": has ", bytes.size(), " bytes, a safetensors file has at least ",
                 kLengthBytes);
  }
  std::uint64_t header_bytes = 0;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return error(Code::kInvalidFile, file, ": the header length is ", header_bytes, ", want at most ", kMaxHeaderBytes,
                 "; this is not a safetensors file, or it is damaged");
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return error(Code::kInvalidFile, file, ": the header length is ", header_bytes, " and only ",
                 bytes.size() - kLengthBytes, " bytes follow; the file is cut off or damaged");
  }
  const std::string_view header_text = text.substr(kLengthBytes, header_bytes);
  if (!header_text.starts_with('{')) {
    return error(Code::kInvalidFile, file, ": the header does not start with '{'; this is not a safetensors file");
  }
  // Objects of arrays: nothing valid is nested deeper than three levels.
  CADRE_ASSIGN(const Json json, Json::parse(header_text, file + ": header",
                                            {.max_bytes = kMaxHeaderBytes,
                                             .max_depth = 4,
                                             .max_values = 20'000'000,
                                             .duplicates = JsonParseOptions::Duplicates::kRefuse,
                                             .python_numbers = false}));
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);

  SafetensorsHeader header;
  header.tensors.reserve(json.members().size());
  const auto shared_name = std::make_shared<const std::string>(file);
  for (const auto& [key, entry] : json.members()) {
    if (key == "__metadata__") {
      if (!entry.is_object()) {
        return error(Code::kInvalidFile, file, ": '__metadata__' is ", describe(entry), ", want an object of strings");
      }
      for (const auto& [field, value] : entry.members()) {
        CADRE_ASSIGN(std::string content, value.as_string(file + ": '__metadata__' field " + quote(field)));
        header.metadata.emplace_back(field, std::move(content));
      }
      continue;
    }
    CADRE_ASSIGN(TensorInfo tensor, read_entry(file + ": tensor " + quote(key), entry, data));
    tensor.name = key;
    tensor.file = shared_name;
    header.tensors.push_back(std::move(tensor));
  }
  // A tensor without elements has no extent, so it comes before the one that starts at the same place.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.data, a.nbytes, a.name) < std::tie(b.data, b.nbytes, b.name);
  });
  CADRE_TRY(check_cover(file, header.tensors, data));
  return header;
}

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  by_name_.resize(header_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [this](auto a, auto b) { return header_.tensors[a].name < header_.tensors[b].name; });
}

Result<std::shared_ptr<SafetensorsFile>> SafetensorsFile::parse(MappedFile file) {
  CADRE_ASSIGN(SafetensorsHeader header, parse_safetensors(file.bytes(), file.path()));
  return std::shared_ptr<SafetensorsFile>(new SafetensorsFile(std::move(file), std::move(header)));
}

Result<std::shared_ptr<SafetensorsFile>> SafetensorsFile::open(const std::filesystem::path& path) {
  CADRE_ASSIGN(MappedFile file, MappedFile::open(path));
  return parse(std::move(file));
}

Result<std::shared_ptr<SafetensorsFile>> SafetensorsFile::read(const std::filesystem::path& path) {
  CADRE_ASSIGN(MappedFile file, MappedFile::read(path));
  return parse(std::move(file));
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [this](std::uint32_t i, std::string_view n) { return header_.tensors[i].name < n; });
  if (at == by_name_.end() || header_.tensors[*at].name != name) return nullptr;
  return &header_.tensors[*at];
}

void SafetensorsFile::drop_pages(const TensorInfo& tensor) const {
  file_.drop_pages(static_cast<std::uint64_t>(tensor.data - file_.data()), tensor.nbytes);
}

}  // namespace cadre
