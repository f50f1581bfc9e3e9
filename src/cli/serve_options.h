// The flags of `cadre serve`.
#pragma once

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

void add_serve(Flags& flags);
// The line comes before the environment (CADRE_SERVE_PORT for --port), that before the file of --config, and that
// before the defaults.
Result<Command> read_serve(const Flags& flags, const Environment& environment);

}  // namespace cadre::cli
