// The command line: what was typed, checked and turned into one of the commands below.
#pragma once

#include <cadre/engine.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

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
  std::string model_dir;
  AdapterSource adapter;
  bool json = false;
};

struct ExplainCommand {
  PlanOptions plan;       // with a model's folder, or without:
  std::string spec_file;  // layers described in JSON
  bool json = false, verbose = false;
};

// Something to print on standard output instead: a help text or the version.
struct PrintCommand {
  std::string text;
};

using Command = std::variant<RunCommand, ChatCommand, LogitsCommand, TokenizeCommand, AdapterCheckCommand,
                             ExplainCommand, PrintCommand>;

// What the environment says, read once by main.
struct Environment {
  std::string backend;  // CADRE_MOE_BACKEND; a --backend flag comes before it
};

Result<Command> parse_command_line(int argc, const char* const* argv, const Environment& environment);

}  // namespace cadre::cli
