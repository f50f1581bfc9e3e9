// generation_config.json: the model's own defaults for sampling, and its special tokens.
#pragma once

#include <cadre/sampling.h>

#include "io/json.h"

namespace cadre {

// Reads what cadre knows (the fields of GenerationDefaults); other fields are ignored, as Hugging Face writes dozens.
// null is absent; an id of -1 is none. A value of the wrong type or out of range is refused, naming file and field.
[[nodiscard]] Result<GenerationDefaults> read_generation_config(const Json& config);

}  // namespace cadre
