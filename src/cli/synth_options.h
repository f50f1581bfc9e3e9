// `cadre synth`: its flags.
#pragma once

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

void add_synth(Flags& flags);
Result<Command> read_synth(const Flags& flags, const Environment& environment);

}  // namespace cadre::cli
