// A tokenizer for a model that has none: bytes, special tokens where the config wants them, and made-up words up to the
// vocabulary's size, so that every id the model can draw has a text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/config.h"

namespace cadre {

// Files of a model folder by name: tokenizer.json (byte-level BPE without merges), tokenizer_config.json with a chat
// template, generation_config.json. Refuses a vocabulary that has no room for the bytes.
Result<std::vector<std::pair<std::string, std::string>>> make_tokenizer_files(const ModelConfig& config);

}  // namespace cadre
