#include "cli/synth_options.h"

#include <utility>

#include "base/result.h"
#include "cli/shared_flags.h"
#include "cli/values.h"
#include "model/config.h"
#include "synth/adapter_files.h"
#include "synth/model_spec.h"

namespace cadre::cli {
namespace {

constexpr std::int64_t kMaxAdapters = 100'000;

std::string layouts_text() {
  std::string text;
  for (const std::string& layout : adapter_layouts()) text += (text.empty() ? "" : ", ") + layout;
  return text;
}

}  // namespace

void add_synth(Flags& flags) {
  flags.group("Model (one of the first two)");
  flags.value("--spec", "FILE.json", "a checkpoint's config.json, as in examples/specs; only sizes and names count");
  flags.value("--family", "NAME", "a small model of this family, e.g. qwen3_moe, with all its structure");
  flags.value("--layers", "N", "the first N layers; default: all");
  add_overrides(flags);
  flags.value("--seed", "N", "other numbers for another seed; default: 0");
  flags.group("Adapters");
  flags.value("--adapters", "N", "so many random PEFT adapters on all linear modules and experts; default: 0");
  flags.value("--rank", "R", "their rank; default: 16");
  flags.value("--layout", "NAME", "how they store the experts: " + layouts_text() + "; default: stacked");
  flags.group("Output");
  flags.value("--out", "DIR", "folder to make (required)");
  flags.value("--max-shard-size", "SIZE", "bytes in one file, or with K, M or G for powers of 1024; default: 5G");
}

Result<Command> read_synth(const Flags& flags, const Environment&) {
  SynthCommand synth;
  SynthOptions& o = synth.options;
  CADRE_ASSIGN(const std::string source, flags.exactly_one({"--spec", "--family"}));
  const std::string text = *flags.text(source);
  Result<Json> config = source == "--spec" ? read_config_file(text) : small_family_config(text);
  if (!config.ok()) {
    if (source == "--spec") return config.status();
    return Status(Code::kInvalidArgument, "--family: " + config.status().message());
  }
  std::optional<std::int64_t> layers;
  CADRE_TRY(flags.number("--layers", &layers, 1, kMaxLayers));
  CADRE_ASSIGN(const std::string overrides, read_overrides(flags));
  CADRE_ASSIGN(o.config, synth_config(*config, overrides, layers));
  if (const auto seed = flags.text("--seed")) {
    CADRE_ASSIGN(o.seed, parse_seed("--seed", *seed));
  }
  std::optional<int> adapters, rank;
  CADRE_TRY(flags.number("--adapters", &adapters, 0, kMaxAdapters));
  CADRE_TRY(flags.number("--rank", &rank, 1, kMaxLoraRank));
  if (!adapters && (rank || flags.given("--layout"))) {
    return error(Code::kInvalidArgument, rank ? "--rank" : "--layout", " goes with --adapters");
  }
  o.adapters = adapters.value_or(0);
  o.adapter_rank = rank.value_or(o.adapter_rank);
  o.adapter_layout = flags.text("--layout").value_or(o.adapter_layout);
  CADRE_TRY(check_adapter_layout(o.adapter_layout));
  CADRE_ASSIGN(const std::string out, flags.required("--out"));
  o.out = out;
  if (const auto size = flags.text("--max-shard-size")) {
    std::int64_t bytes = 0;
    CADRE_ASSIGN(bytes, parse_bytes("--max-shard-size", *size));
    o.max_shard_bytes = static_cast<std::uint64_t>(bytes);
  }
  return Command(std::move(synth));
}

}  // namespace cadre::cli
