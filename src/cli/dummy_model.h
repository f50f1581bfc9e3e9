// --dummy-weights: a model's folder for an engine that makes the weights itself.
#pragma once

#include <string>

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

void add_dummy(Flags& flags);

// Where --dummy-weights is given, --model may be a folder without weights, a config file or a family's name. Sets
// model_dir to the folder as it is where it serves, otherwise to one beside the system's temporary files with
// config.json (of the first --layers layers) and a tokenizer: the folder's own, or a made-up one.
Status read_dummy(const Flags& flags, const Environment& environment, EngineOptions* engine);

// Removes what read_dummy made. To be called once the engine is open, which reads all of it; the end of the program
// does it too.
void drop_dummy_folders();

}  // namespace cadre::cli
