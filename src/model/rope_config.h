// Rotary embeddings as configs describe them: rope_parameters of transformers 5, rope_theta and rope_scaling of 4.
#pragma once

#include <vector>

#include "io/json.h"
#include "ops/ops.h"

namespace cadre {

// Host-side tables; `upload_rope` makes a Rope of them.
struct RopeConfig {
  Rope rope;  // without its views
  std::vector<float> inv_freq, long_inv_freq;
};

struct RopeOptions {
  double partial_otherwise = 1.0;  // partial_rotary_factor where the config has none
  bool base_factor = false;  // Hunyuan: "dynamic" with an `alpha` multiplies the base by a power of it, at every length
};

// `head_dim` is the default for the rotated part, which partial_rotary_factor shrinks. An unknown rope_type lists the
// known ones. Formulas: "default"; "linear" (kaiokendev's interpolation); "dynamic" (NTK-aware, by length); "yarn"
// (arXiv:2309.00071); "llama3" (Llama 3.1's wavelength bands); "longrope" (arXiv:2402.13753); "proportional" (Gemma 4:
// partial_rotary_factor stops the slow frequencies, and the halves are those of the whole head).
Result<RopeConfig> read_rope(const Json& config, std::int64_t head_dim, std::int64_t max_context,
                             const RopeOptions& options = {});

// The same where rope_parameters has an object for each type of layer, which holds all there is, rope_theta as well.
Result<RopeConfig> read_layer_rope(const Json& config, std::string_view layer_type, std::int64_t head_dim,
                                   std::int64_t max_context);

}  // namespace cadre
