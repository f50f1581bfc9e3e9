// The program `cadre`.
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
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

int main(int argc, char** argv) {
  install_signals();
  Environment environment;
  if (const char* backend = std::getenv("CADRE_MOE_BACKEND")) environment.backend = backend;
  try {
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
