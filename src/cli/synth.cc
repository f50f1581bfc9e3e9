// cadre synth: a random model of a family, with a tokenizer and adapters, on disk.
#include <cstdio>
#include <string>

#include "base/result.h"
#include "base/size_text.h"
#include "cli/commands.h"
#include "cli/signals.h"

namespace cadre::cli {

int execute(const SynthCommand& command) {
  const InterruptScope scope;
  SynthOptions options = command.options;
  const bool bar = stderr_is_terminal();
  std::uint64_t shown = 101;
  options.progress = [&](std::uint64_t done, std::uint64_t all) -> Status {
    if (interrupted()) return error(Code::kCancelled, "interrupted; nothing is left of the model");
    const std::uint64_t percent = all == 0 ? 100 : done * 100 / all;
    if (bar && percent != shown) {
      std::fprintf(stderr, "\rwriting %s of %s%s", size_text(done).c_str(), size_text(all).c_str(),
                   done == all ? "\n" : "   ");
      shown = percent;
    }
    return {};
  };
  const Result<SynthReport> made = write_synth_model(options);
  if (!made.ok()) {
    if (bar && shown < 100) std::fputc('\n', stderr);
    if (made.status().code() != Code::kCancelled) return report(made.status());
    note(made.status().message());
    return kExitInterrupted;
  }
  Output out;
  const std::string folder = options.out.string();
  std::string text = folder + ": " + std::to_string(made->tensors) + " tensors, " + size_text(made->bytes) + ", " +
                     std::to_string(made->shards) + (made->shards == 1 ? " file, " : " files, ") +
                     std::to_string(made->moe_layers) + " MoE layers\n";
  for (const std::string& adapter : made->adapters) text += adapter + "\n";
  out.write(text);
  if (made->moe_layers == 0) note("none of these layers is a MoE layer; more of them (--layers) would have some");
  return out.exit_code(0);
}

}  // namespace cadre::cli
