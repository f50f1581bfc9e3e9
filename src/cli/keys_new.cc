// cadre keys new: a random key for a client of `cadre serve`, and its entry for the file of --keys.
#include "cli/commands.h"
#include "server/access/keys_file.h"

namespace cadre::cli {

int execute(const KeysNewCommand& command) {
  const Result<server::NewKey> made = server::new_key(command.grant, command.note);
  if (!made.ok()) return report(made.status());
  Output out;
  out.write(made->key + "\n" + server::to_json(made->entry) + "\n");
  note("first line: the key, for the client; it is shown this once and kept nowhere");
  note("second line: its entry, for \"keys\" in the file of cadre serve --keys");
  return out.exit_code(0);
}

}  // namespace cadre::cli
