// Experts packed along a first dimension of their own, under the name of a projection:
//   <experts>.<projection>.lora_A[.weight]  [E, r, in]
//   <experts>.<projection>.lora_B[.weight]  [E, out, r]
// A side of which the experts have one in common ("shared outer": most often A of gate and up, and B of down) has 1 in
// place of E, and is kept once. Where gate and up come together, out is 2I, in the row order of the model's stacked
// parameter; A then serves both, or is [E, 2r, in], first the rows of gate's.
#pragma once

#include "lora/formats/format.h"

namespace cadre {

// What a name stands for. Gate and up may both be set.
struct PackedName {
  bool gate = false, up = false, down = false;
  bool any() const { return gate || up || down; }
};

// `meaning` of the name that follows the experts' path; nothing set: the model has no such projection.
Status read_packed(AdapterBuilder& builder, std::span<const FileTensor* const> tensors, std::string_view format,
                   PackedName (*meaning)(std::string_view name, const ExpertsTarget& target));

// Whether the tensor is lora_A or lora_B under one of these names.
bool is_packed(const FileTensor& tensor, std::span<const std::string_view> names);

}  // namespace cadre
