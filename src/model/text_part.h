// The text part of a multimodal checkpoint: its tensors under the names that the text model's family knows.
#pragma once

#include "io/checkpoint.h"
#include "model/config.h"

namespace cadre {

// Opens the model folder. Where the config is of a wrapper, `model.language_model.*` and `language_model.*` lose that
// part of their name, and what lies beside the text part (vision, audio, projectors) is left out, with a note.
Result<std::shared_ptr<Checkpoint>> open_model_weights(const std::string& dir, const ModelConfig& config,
                                                       std::vector<std::string>* notes = nullptr);

// How adapters name the text part's modules, and what the family calls them: for AdapterTargets::prefix_aliases.
std::vector<std::pair<std::string, std::string>> text_part_aliases();

}  // namespace cadre
