// cadre adapter check: what an adapter holds, and whether it fits a model.
#include "cli/commands.h"

namespace cadre::cli {

int execute(const AdapterCheckCommand& command) {
  const Result<AdapterCheck> check = cadre::check_adapter(command.model_dir, command.adapter, command.hf_overrides);
  if (!check.ok()) return report(check.status());
  Output out;
  std::string text = command.json ? check->json : check->text;
  if (!text.ends_with('\n')) text += '\n';
  out.write(text);
  return out.exit_code(check->usable ? 0 : kExitNotUsable);
}

}  // namespace cadre::cli
