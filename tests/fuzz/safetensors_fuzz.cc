// Any bytes as a safetensors file: refused with a message, or every tensor inside the file and readable.
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>

#include "io/safetensors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(std::span<const std::byte> bytes) {
  const cadre::Result<cadre::SafetensorsHeader> header = cadre::parse_safetensors(bytes, "fuzz.safetensors");
  if (!header.ok()) {
    require(header.status().message().find("fuzz.safetensors") != std::string::npos);
    return;
  }
  std::uint64_t total = 0;
  unsigned sum = 0;
  for (const cadre::TensorInfo& tensor : header->tensors) {
    require(tensor.data >= bytes.data() && tensor.data + tensor.nbytes <= bytes.data() + bytes.size());
    require(static_cast<std::uint64_t>(tensor.elements()) * static_cast<unsigned>(cadre::dtype_bits(tensor.dtype)) ==
            tensor.nbytes * 8);
    for (const std::byte byte : tensor.bytes()) sum += std::to_integer<unsigned>(byte);
    total += tensor.nbytes;
    require(!cadre::describe(tensor).empty());
  }
  require(total <= bytes.size());
  volatile unsigned keep = sum;
  (void)keep;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  check(bytes);
  // Mutations rarely keep the length field right, so the input is also taken as a header alone, followed by as much
  // data as the first byte says.
  if (size > 0) {
    std::string file;
    const std::size_t header_bytes = size - 1;
    for (int i = 0; i < 8; ++i) file += static_cast<char>((header_bytes >> (8 * i)) & 0xff);
    file.append(reinterpret_cast<const char*>(data) + 1, header_bytes);
    file.append(data[0], '\x2a');
    check({reinterpret_cast<const std::byte*>(file.data()), file.size()});
  }
  return 0;
}
