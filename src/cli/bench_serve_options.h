// The flags of `cadre bench serve`.
#pragma once

#include "cli/flags.h"
#include "cli/options.h"

namespace cadre::cli {

void add_bench_serve(Flags& flags);
Result<Command> read_bench_serve(const Flags& flags, const Environment& environment);

}  // namespace cadre::cli
