// Flags from beyond the line: the environment, then a configuration file.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

// Supplies what the line of `flags` does not have: from variables PREFIX_FLAG_NAME ("CADRE_SERVE_PORT" for --port),
// then from the file of --config, where the command has that flag. Of a flag with several values a variable holds words
// with blanks between, or a JSON list. An empty variable counts as none. Unknown keys of the file are errors; unknown
// variables are notes, because whoever set them may have meant something else.
Status supply_flags(const Environment& environment, const std::string& prefix, Flags* flags,
                    std::vector<std::string>* notes);

}  // namespace cadre::cli
