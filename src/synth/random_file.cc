#include "synth/random_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/result.h"
#include "model/dummy_weights.h"

namespace cadre {

Status write_random_file(const std::filesystem::path& path, std::span<const SafetensorsWriter::Entry> entries,
                         std::uint64_t seed, const std::function<Status(std::uint64_t bytes)>& wrote) {
  constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
  // As PyTorch's files say.
  static const std::vector<std::pair<std::string, std::string>> kMetadata = {{"format", "pt"}};
  CADRE_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::open(path, entries, kMetadata));
  std::vector<std::byte> piece(kPiece);
  for (const std::size_t i : writer.order()) {
    TensorInfo tensor;
    tensor.name = entries[i].name;
    tensor.dtype = entries[i].dtype;
    tensor.shape = entries[i].shape;
    tensor.nbytes = entries[i].nbytes;
    if (tensor.nbytes == 0) continue;
    const DummyTensor dummy(tensor, seed);
    for (std::uint64_t at = 0; at < tensor.nbytes; at += kPiece) {
      const std::span<std::byte> part(piece.data(), static_cast<std::size_t>(std::min(kPiece, tensor.nbytes - at)));
      dummy.fill(at, part);
      CADRE_TRY(writer.write(part));
      if (wrote) CADRE_TRY(wrote(part.size()));
    }
  }
  return writer.finish();
}

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file) return {};
  return error(Code::kInvalidArgument, "cannot write '", path.string(),
               "': ", std::generic_category().message(errno == 0 ? EIO : errno));
}

}  // namespace cadre
