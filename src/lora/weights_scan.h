// One pass over an adapter's bytes: its digest, the values that cannot be used, and the tensors that are all zero.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace cadre {

struct WeightsScan {
  std::string digest;      // XXH3 with 128 bits over the config's text and the weights' file, hexadecimal
  std::vector<bool> zero;  // by tensor, in the order of SafetensorsFile::tensors()
};

// Refuses element types other than BF16, F16 and F32, and, if `check_values`, NaN and infinities, naming the tensor.
Result<WeightsScan> scan_weights(std::string_view config_text, const SafetensorsFile& file, bool check_values);

}  // namespace cadre
