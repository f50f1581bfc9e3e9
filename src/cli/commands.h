// What each command does; the program's exit status is what these return.
#pragma once

#include <string>

#include "cli/options.h"
#include "cli/output.h"

namespace cadre::cli {

int execute(const RunCommand& command);
int execute(const ChatCommand& command);
int execute(const LogitsCommand& command);
int execute(const TokenizeCommand& command);
int execute(const AdapterCheckCommand& command);
int execute(const ExplainCommand& command);
int execute(const ServeCommand& command);
int execute(const BenchServeCommand& command);
int execute(const KeysNewCommand& command);
int execute(const SynthCommand& command);

// The table of `explain`, at most 100 columns wide. Also for /explain in a chat.
std::string explain_text(const std::vector<LayerReport>& layers, bool verbose = false);
// What --verbose says at the start of an engine, a line for each kind of MoE layer: backend, policy, rehearsal.
std::vector<std::string> start_lines(const std::vector<LayerReport>& layers);

}  // namespace cadre::cli
