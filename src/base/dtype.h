// The element types of tensors: every type a safetensors file can declare, so that such files open and a type this
// project cannot compute with is refused by name, where it is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cadre {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC64,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF6E2M3,
  kF6E3M2,
  kF4,
};

namespace internal {
struct DTypeInfo {
  DType dtype;
  std::string_view name;              // in messages, as PyTorch spells it
  std::string_view safetensors_name;  // in a safetensors header
  int bits;                           // of one element
};
// In the order of the enum.
inline constexpr std::array kDTypes = {
    DTypeInfo{DType::kF32, "float32", "F32", 32},
    DTypeInfo{DType::kF16, "float16", "F16", 16},
    DTypeInfo{DType::kBF16, "bfloat16", "BF16", 16},
    DTypeInfo{DType::kF64, "float64", "F64", 64},
    DTypeInfo{DType::kI64, "int64", "I64", 64},
    DTypeInfo{DType::kI32, "int32", "I32", 32},
    DTypeInfo{DType::kI16, "int16", "I16", 16},
    DTypeInfo{DType::kI8, "int8", "I8", 8},
    DTypeInfo{DType::kU64, "uint64", "U64", 64},
    DTypeInfo{DType::kU32, "uint32", "U32", 32},
    DTypeInfo{DType::kU16, "uint16", "U16", 16},
    DTypeInfo{DType::kU8, "uint8", "U8", 8},
    DTypeInfo{DType::kBool, "bool", "BOOL", 8},
    DTypeInfo{DType::kC64, "complex64", "C64", 64},
    DTypeInfo{DType::kF8E4M3, "float8_e4m3", "F8_E4M3", 8},
    DTypeInfo{DType::kF8E5M2, "float8_e5m2", "F8_E5M2", 8},
    DTypeInfo{DType::kF8E4M3Fnuz, "float8_e4m3fnuz", "F8_E4M3FNUZ", 8},
    DTypeInfo{DType::kF8E5M2Fnuz, "float8_e5m2fnuz", "F8_E5M2FNUZ", 8},
    DTypeInfo{DType::kF8E8M0, "float8_e8m0", "F8_E8M0", 8},
    DTypeInfo{DType::kF6E2M3, "float6_e2m3", "F6_E2M3", 6},
    DTypeInfo{DType::kF6E3M2, "float6_e3m2", "F6_E3M2", 6},
    DTypeInfo{DType::kF4, "float4", "F4", 4},
};
static_assert([] {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
  }
  return kDTypes.back().dtype == DType::kF4;
}());
}  // namespace internal

constexpr std::string_view dtype_name(DType dtype) { return internal::kDTypes[static_cast<std::size_t>(dtype)].name; }
constexpr std::string_view dtype_safetensors_name(DType dtype) {
  return internal::kDTypes[static_cast<std::size_t>(dtype)].safetensors_name;
}
// Bits of one element. Types below a byte are packed without gaps.
constexpr int dtype_bits(DType dtype) { return internal::kDTypes[static_cast<std::size_t>(dtype)].bits; }

// "BF16" -> kBF16; nothing for a name that is not a safetensors type.
constexpr std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const internal::DTypeInfo& info : internal::kDTypes) {
    if (info.safetensors_name == name) return info.dtype;
  }
  return std::nullopt;
}

// The types model and adapter weights may have: BF16, F16 and F32. Others are quantised, or not weights.
constexpr bool is_float_weight(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

}  // namespace cadre
