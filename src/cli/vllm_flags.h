// Flags of `vllm serve` that cadre has under another name, does not need, or cannot honour. Whoever moves a command
// line over gets an answer to each instead of "unknown flag".
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace cadre::cli {

// Declares them, out of the help text.
void add_vllm_flags(Flags& flags);
// Supplies what other names mean; notes what has no effect; refuses the rest, saying what to do instead.
Status read_vllm_flags(Flags* flags, std::vector<std::string>* notes);

}  // namespace cadre::cli
