// The program `cadre`.
#include <unistd.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <variant>

#include "cli/commands.h"
#include "cli/signals.h"

namespace cadre::cli {
namespace {

int execute(const PrintCommand& command) {
  Output out;
  out.write(command.text);
  return out.exit_code(0);
}

Environment read_environment() {
  Environment environment;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    environment.variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  if (const auto at = environment.variables.find("CADRE_MOE_BACKEND"); at != environment.variables.end()) {
    environment.backend = at->second;
  }
  return environment;
}

int main(int argc, char** argv) {
  install_signals();
  try {
    const Environment environment = read_environment();
    const Result<Command> command = parse_command_line(argc, argv, environment);
    if (!command.ok()) return report(command.status());
    return std::visit([](const auto& c) { return execute(c); }, *command);
  } catch (const std::bad_alloc&) {
    return report(Status(Code::kOutOfMemory, "out of memory"));
  } catch (const std::exception& e) {
    return report(Status(Code::kInternal, std::string("unexpected failure: ") + e.what()));
  }
}

}  // namespace
}  // namespace cadre::cli

int main(int argc, char** argv) { return cadre::cli::main(argc, argv); }
