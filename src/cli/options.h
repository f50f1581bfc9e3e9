// The command line: what was typed, checked and turned into one of the commands below.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/access/keys_file.h"
#include "server/load/load_options.h"
#include "server/service/serve_options.h"
#include "synth/model_folder.h"

namespace cadre::cli {

struct RunCommand {
  EngineOptions engine;
  std::vector<std::string> use;  // adapters to answer under; "" is the base
  Request request;               // without an adapter; its prompt is absent where a file holds it
  std::string prompt_file;       // "-" is standard input
  bool json = false, verbose = false;
};

struct ChatCommand {
  EngineOptions engine;
  std::string adapter;  // at the start; "" is the base
  std::string system;
  SamplingRequest sampling;
  bool verbose = false;
};

struct LogitsCommand {
  EngineOptions engine;
  std::string adapter;                           // "" is the base
  std::optional<std::vector<std::int32_t>> ids;  // otherwise:
  std::string prompts_file;
  bool step = false;
  std::string out;
};

struct TokenizeCommand {
  std::string model_dir;
  std::optional<std::string> text;  // exactly one of the three
  std::string cases_file;
  std::optional<std::vector<std::int32_t>> decode;
};

struct AdapterCheckCommand {
  std::string model_dir, hf_overrides;
  AdapterSource adapter;
  bool json = false;
};

struct ExplainCommand {
  PlanOptions plan;       // with a model's folder, or without:
  std::string spec_file;  // layers described in JSON
  bool json = false, verbose = false;
};

struct ServeCommand {
  EngineOptions engine;
  server::ServeOptions server;
  std::vector<std::string> notes;  // what the user should know of the flags
  bool verbose = false;
};

struct BenchServeCommand {
  server::LoadOptions load;
  std::string save_file;  // JSON; empty: none
  bool json = false;      // on standard output in place of the table
};

struct KeysNewCommand {
  server::Grant grant;
  std::string note;
};

struct SynthCommand {
  SynthOptions options;
};

// Something to print on standard output instead: a help text or the version.
struct PrintCommand {
  std::string text;
};

using Command =
    std::variant<RunCommand, ChatCommand, LogitsCommand, TokenizeCommand, AdapterCheckCommand, ExplainCommand,
                 ServeCommand, BenchServeCommand, KeysNewCommand, SynthCommand, PrintCommand>;

// What the environment says, read once by main.
struct Environment {
  std::string backend;                           // CADRE_MOE_BACKEND; a --backend flag comes before it
  std::map<std::string, std::string> variables;  // all of it
};

Result<Command> parse_command_line(int argc, const char* const* argv, const Environment& environment);

}  // namespace cadre::cli
