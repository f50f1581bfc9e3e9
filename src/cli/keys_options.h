// The flags of `cadre keys new`.
#pragma once

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

void add_keys_new(Flags& flags);
Result<Command> read_keys_new(const Flags& flags, const Environment& environment);

}  // namespace cadre::cli
