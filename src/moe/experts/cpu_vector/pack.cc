#include "moe/experts/cpu_vector/pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/dot.h"

namespace cadre::cpu_vector {

PackedType packed_type(DType dtype) { return dtype == DType::kBF16 ? PackedType::kBF16 : PackedType::kF32; }

void pack(const View& m, PackedType type, int block, std::int64_t k_padded, std::byte* out) {
  const std::int64_t n_total = m.dim(0), k_total = m.dim(1), blocks = round_up(n_total, block) / block;
  const std::int64_t bytes = packed_bytes(type, n_total, block, k_padded);
  if (bytes == 0) return;
  std::memset(out, 0, static_cast<std::size_t>(bytes));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t n0 = b * block, rows = std::min<std::int64_t>(block, n_total - n0);
    if (type == PackedType::kBF16) {
      // One row of packed words after another: `block` rows are read side by side, which stay in the first cache.
      std::uint16_t* to = reinterpret_cast<std::uint16_t*>(out) + n0 * k_padded;
      const std::uint16_t* from = ptr<std::uint16_t>(m) + n0 * m.step(0);
      for (std::int64_t k = 0; k < k_total; ++k) {
        std::uint16_t* line = to + k / 2 * block * 2 + k % 2;
        for (std::int64_t n = 0; n < rows; ++n) line[n * 2] = from[n * m.step(0) + k * m.step(1)];
      }
    } else {
      float* to = reinterpret_cast<float*>(out) + n0 * k_padded;
      for (std::int64_t k = 0; k < k_total; ++k) {
        for (std::int64_t n = 0; n < rows; ++n) {
          to[k * block + n] = element(m.data, m.dtype, (n0 + n) * m.step(0) + k * m.step(1));
        }
      }
    }
  }
}

bool all_finite(PackedType type, const std::byte* packed, std::int64_t bytes) {
  // An exponent of all ones; counted without a branch, so that the loop runs in vectors.
  std::int64_t bad = 0;
  if (type == PackedType::kBF16) {
    const std::uint16_t* words = reinterpret_cast<const std::uint16_t*>(packed);
    for (std::int64_t i = 0; i < bytes / 2; ++i) bad += (words[i] & 0x7f80u) == 0x7f80u ? 1 : 0;
  } else {
    const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(packed);
    for (std::int64_t i = 0; i < bytes / 4; ++i) bad += (words[i] & 0x7f800000u) == 0x7f800000u ? 1 : 0;
  }
  return bad == 0;
}

void prefer_huge_pages(void* memory, std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kHuge = std::uintptr_t{2} << 20;  // of x86-64; with larger ones the system rounds for itself
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(memory) + kHuge - 1) / kHuge * kHuge;
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kHuge * kHuge;
  // Only whole pages inside the block, so nothing more is taken. A hint: failing is fine.
  if (memory != nullptr && begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory;
  (void)bytes;
#endif
}

}  // namespace cadre::cpu_vector
