#include "lora/weights_scan.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/result.h"

namespace cadre {
namespace {

// A chunk is hashed while the cache still holds it from the check.
constexpr std::size_t kChunk = 256u << 10;

// Whether any element has an exponent of all ones, and all elements' bits joined.
template <class Word>
void scan(const std::byte* data, std::size_t bytes, Word exponent, bool* bad, Word* any) {
  unsigned found = 0;
  Word seen = 0;
  for (std::size_t i = 0; i + sizeof(Word) <= bytes; i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + i, sizeof word);
    found |= static_cast<unsigned>((word & exponent) == exponent);
    seen = static_cast<Word>(seen | word);
  }
  *bad |= found != 0;
  *any = static_cast<Word>(*any | seen);
}

struct Seen {
  bool bad = false;
  std::uint32_t bits = 0;
};

void scan_chunk(DType dtype, const std::byte* data, std::size_t bytes, Seen* seen) {
  if (dtype == DType::kF32) {
    scan<std::uint32_t>(data, bytes, 0x7f800000u, &seen->bad, &seen->bits);
    return;
  }
  auto bits = static_cast<std::uint16_t>(seen->bits);
  scan<std::uint16_t>(data, bytes, dtype == DType::kBF16 ? 0x7f80 : 0x7c00, &seen->bad, &bits);
  seen->bits = bits;
}

}  // namespace

Result<WeightsScan> scan_weights(std::string_view config_text, const SafetensorsFile& file, bool check_values) {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  if (!state || XXH3_128bits_reset(state.get()) == XXH_ERROR) {
    return error(Code::kOutOfMemory, "no memory to hash ", file.path());
  }
  const auto hash = [&](const void* data, std::size_t bytes) { XXH3_128bits_update(state.get(), data, bytes); };
  // The lengths keep (config, weights) apart from every other split of the same bytes.
  const std::uint64_t lengths[2] = {config_text.size(), file.file_bytes()};
  hash(lengths, sizeof lengths);
  hash(config_text.data(), config_text.size());

  WeightsScan out;
  std::uint64_t tensor_bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) tensor_bytes += tensor.nbytes;
  const auto header_bytes = static_cast<std::size_t>(file.file_bytes() - tensor_bytes);  // tensors cover the rest
  if (!file.tensors().empty()) hash(file.tensors().front().data - header_bytes, header_bytes);

  for (const TensorInfo& tensor : file.tensors()) {
    if (!is_float_weight(tensor.dtype)) {
      return error(Code::kUnsupported, file.path(), ": tensor '", tensor.name, "' is ",
                   dtype_safetensors_name(tensor.dtype), ", want BF16, F16 or F32");
    }
    Seen seen;
    for (std::size_t at = 0; at < tensor.nbytes; at += kChunk) {
      const std::size_t bytes = std::min(kChunk, static_cast<std::size_t>(tensor.nbytes) - at);
      if (check_values) scan_chunk(tensor.dtype, tensor.data + at, bytes, &seen);
      hash(tensor.data + at, bytes);
    }
    if (seen.bad) {
      return error(Code::kInvalidFile, file.path(), ": tensor '", tensor.name,
                   "' holds NaN or infinite values; train or export the adapter again");
    }
    const std::uint32_t sign = tensor.dtype == DType::kF32 ? 0x80000000u : 0x8000u;
    out.zero.push_back(check_values && (seen.bits & ~sign) == 0);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  constexpr char kHex[] = "0123456789abcdef";
  for (const unsigned char byte : canonical.digest) {
    out.digest += kHex[byte >> 4];
    out.digest += kHex[byte & 15];
  }
  return out;
}

}  // namespace cadre
