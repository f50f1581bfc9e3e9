#include <utility>

#include "base/result.h"
#include "cli/shared_flags.h"
#include "cli/values.h"

namespace cadre::cli {
namespace {

// Declared adapters: what is not said comes from the adapters given, or is rank 16 on all of the experts.
Status read_declared(const Flags& flags, PlanOptions* plan) {
  std::optional<int> count, rank;
  CADRE_TRY(flags.number("--max-loras", &count, 1, kMaxLayerExperts));
  CADRE_TRY(flags.number("--max-lora-rank", &rank, 1, kMaxLayerExperts));
  const auto targets = flags.text("--targets");
  if (!count && plan->adapters.empty() && (rank || targets)) {
    return error(Code::kInvalidArgument, rank ? "--max-lora-rank" : "--targets", " goes with --max-loras or --adapter");
  }
  plan->max_loras = count.value_or(0);
  plan->max_lora_rank = rank.value_or(count && plan->adapters.empty() ? 16 : 0);
  if (targets) {
    CADRE_ASSIGN(plan->expert_targets, parse_targets("--targets", *targets));
  } else if (count && plan->adapters.empty()) {
    plan->expert_targets = kGate | kUp | kDown;
  }
  return {};
}

}  // namespace

void add_explain(Flags& flags) {
  flags.group("Model (one of the first two)");
  flags.value("--model", "DIR", "folder of the checkpoint; only headers are read, no weights");
  flags.value("--spec", "FILE.json",
              "a checkpoint's config.json, as in examples/specs, or MoE layers described in JSON");
  add_overrides(flags);
  add_adapters(flags);
  flags.group("Adapters to be ready for, beyond those given");
  flags.value("--max-loras", "N", "adapters usable at the same time; default: those given");
  flags.value("--max-lora-rank", "R", "their largest rank on experts; default: 16, or that of the adapters given");
  flags.value("--targets", "LIST",
              "what they touch: gate, up, down of the experts, experts for all three; attention, mamba and dense ask "
              "nothing of MoE layers; default: what the adapters given touch, or experts where there are none");
  add_machine(flags, "auto");
  std::string devices;
  for (const DeviceCaps& device : described_devices()) devices += ", " + device.name;
  flags.value("--device", "NAME", "plan for this machine (cpu, the default) or a described one: " + devices.substr(2));
  flags.value("--tp", "N", "ranks that each expert is split over; default: 1");
  flags.value("--ep", "N", "ranks that the experts are spread over; default: 1");
  flags.value("--tokens", "LIST", "rows in one call, e.g. 1,16,512, each as likely; default: 8,512");
  flags.toggle("--batch-invariant", "require that a row's bits do not depend on other rows");
  flags.group("Output");
  flags.toggle("--verbose", "every reason in full, what was waived, the whole deployment");
  flags.toggle("--json", "one JSON object; times in microseconds");
}

Result<Command> read_explain(const Flags& flags, const Environment& environment) {
  ExplainCommand explain;
  PlanOptions& plan = explain.plan;
  CADRE_ASSIGN(const std::string source, flags.exactly_one({"--model", "--spec"}));
  if (source == "--model") {
    CADRE_ASSIGN(plan.model_dir, read_model(flags, environment));
  } else {
    CADRE_ASSIGN(explain.spec_file, flags.required(source));
  }
  CADRE_ASSIGN(plan.hf_overrides, read_overrides(flags));
  CADRE_ASSIGN(plan.adapters, read_adapters(flags));
  CADRE_ASSIGN(plan.backend, read_policy(flags, environment, "auto"));
  CADRE_TRY(read_declared(flags, &plan));
  DeviceCaps device = this_device();
  if (const auto name = flags.text("--device")) {
    Result<DeviceCaps> found = find_device(*name);
    if (!found.ok()) return Status(Code::kInvalidArgument, "--device: " + found.status().message());
    device = *std::move(found);
  }
  std::optional<int> threads, tp, ep;
  CADRE_TRY(flags.number("--threads", &threads, 1, kMaxThreads));
  CADRE_TRY(flags.number("--tp", &tp, 1, kMaxRanks));
  CADRE_TRY(flags.number("--ep", &ep, 1, kMaxRanks));
  device.cores = threads.value_or(device.cores);
  plan.device = device;
  plan.tensor_parallel = tp.value_or(1);
  plan.expert_parallel = ep.value_or(1);
  if (const auto tokens = flags.text("--tokens")) {
    CADRE_ASSIGN(plan.tokens, parse_ids("--tokens", *tokens));
  }
  plan.batch_invariant = flags.given("--batch-invariant");
  explain.json = flags.given("--json");
  explain.verbose = flags.given("--verbose");
  return Command(std::move(explain));
}

}  // namespace cadre::cli
