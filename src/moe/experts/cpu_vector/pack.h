// The packed form of a matrix that the tile kernels read.
//
// [n, k] becomes blocks of `block` rows n (the kernel's output columns), padded with zeros to whole blocks and to
// k_padded, which is even. Inside a block:
//   kBF16: [k / 2][block][2]: one 32-bit word holds an even k in its low half and the next k in its high half, so a
//          shift and a mask widen two k of a column with one load, one operation each.
//   kF32:  [k][block]
#pragma once

#include "tensor/view.h"

namespace cadre::cpu_vector {

enum class PackedType : std::uint8_t { kBF16, kF32 };

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
inline std::int64_t element_bytes(PackedType type) { return type == PackedType::kBF16 ? 2 : 4; }
inline std::int64_t packed_bytes(PackedType type, std::int64_t n, int block, std::int64_t k_padded) {
  return round_up(n, block) * k_padded * element_bytes(type);
}

// What holds a dtype's numbers exactly: BF16 as it is, F16 and F32 as float32.
PackedType packed_type(DType dtype);

// `m` is any strided host view [n, k], k <= k_padded, of the dtype that `type` was made for. Fills packed_bytes.
void pack(const View& m, PackedType type, int block, std::int64_t k_padded, std::byte* out);

// Whether no packed number is NaN or infinite.
bool all_finite(PackedType type, const std::byte* packed, std::int64_t bytes);

// Asks the system to back memory that is read in long streams with huge pages, where it can: one core reads 10 to 40 %
// faster, the more the more rows share a weight.
void prefer_huge_pages(void* memory, std::size_t bytes);

}  // namespace cadre::cpu_vector
