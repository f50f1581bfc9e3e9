#include <array>

#include "lora/formats/format.h"

namespace cadre {

std::span<const AdapterFormat> adapter_formats() {
  static const std::array kFormats = {kPeftLinearFormat,  kPeftEmbeddingFormat, kReplacementFormat,  kPerExpertFormat,
                                      kPeftStackedFormat, kPackedExpertsFormat, kTinkerExpertsFormat};
  return kFormats;
}

}  // namespace cadre
