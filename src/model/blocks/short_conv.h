// LFM2's short convolution: in_proj gives B, C and x; C * conv(B * x) -> out_proj.
#pragma once

#include "model/builder.h"

namespace cadre {

struct ShortConvOptions {
  std::string module;  // "model.layers.0.conv"
  std::int64_t hidden = 0, conv_width = 0;
  bool bias = false;  // of both projections and the convolution
};

Result<std::unique_ptr<Mixer>> make_short_conv(Builder& builder, const ShortConvOptions& options);

}  // namespace cadre
