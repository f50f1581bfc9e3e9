#include "cli/options.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/values.h"

namespace cadre::cli {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

constexpr const char* kFooter =
    "Exit status: 0 done; 1 adapter check: not usable; 2 wrong usage; 3 not found; 4 malformed file;\n"
    "5 not supported; 6 no backend; 7 over a limit; 8 not enough memory; 9 conflict; 70 internal error;\n"
    "74 output could not be written; 130 ended by Ctrl-C; 141 output closed.\n"
    "Environment: CADRE_MOE_BACKEND is a backend policy; --backend comes before it.\n"
    "docs/command-line.md says more.";

// ---- flags that commands share ----------------------------------------------------------------------------------

void add_model(Flags& flags) {
  flags.group("Model");
  flags.value("--model", "DIR", "folder of the checkpoint: config.json, *.safetensors, tokenizer.json (required)");
}

void add_adapters(Flags& flags) {
  flags.values("--adapter", "NAME=DIR[,option=value]...",
               "load a PEFT adapter under this name, with the options orientation=auto|peft|swapped, "
               "b_order=peft|expert_major, check_weights=true|false");
}

void add_one_adapter(Flags& flags, const char* help) { flags.value("--adapter", "DIR[,option=value]...", help); }

void add_machine(Flags& flags, const char* default_policy) {
  flags.group("Machine");
  flags.value("--backend", "POLICY",
              "which backend runs the MoE layers: auto, NAME, 'require NAME', 'prefer NAME' or 'exclude NAME[,NAME]'; "
              "default: CADRE_MOE_BACKEND from the environment, otherwise " +
                  std::string(default_policy));
  flags.value("--threads", "N", "compute threads, 1 to 1024; default: the machine's hardware threads");
}

void add_limits(Flags& flags) {
  flags.value("--max-model-len", "N", "tokens of prompt and answer together; default: the model's context");
  flags.toggle("--check-weights", "look for NaN and infinity in every tensor of the model while loading");
}

void add_sampling(Flags& flags) {
  flags.group("Generation (what is not given comes from the model's generation_config.json)");
  flags.value("--max-tokens", "N", "tokens of the answer at most; default: until the context is full");
  flags.value("--temperature", "X", "0 takes the most likely token (greedy); higher draws more freely");
  flags.value("--top-k", "N", "draw among the N most likely tokens; 0 is all");
  flags.value("--top-p", "X", "draw among the most likely tokens that reach this probability together, 0 to 1");
  flags.value("--min-p", "X", "drop tokens below this share of the best token's probability, 0 to 1");
  flags.value("--repetition-penalty", "X", "divide the logits of tokens seen in prompt or answer; 1 is none");
  flags.value("--presence-penalty", "X", "subtract from the logits of tokens that the answer has, -2 to 2");
  flags.value("--frequency-penalty", "X", "subtract for each time the answer has the token, -2 to 2");
  flags.values("--logit-bias", "ID=BIAS", "add BIAS, -100 to 100, to a token's logit");
  flags.values("--stop", "TEXT", "end before this text");
  flags.value("--seed", "N", "the same seed draws the same tokens; default: a new one each time");
  flags.toggle("--ignore-eos", "go on after the model's end tokens, up to --max-tokens");
}

Result<std::vector<AdapterSource>> read_adapters(const Flags& flags) {
  std::vector<AdapterSource> adapters;
  for (const std::string& text : flags.all("--adapter")) {
    CADRE_ASSIGN(AdapterSource source, parse_adapter("--adapter", text));
    for (const AdapterSource& other : adapters) {
      if (other.name == source.name) {
        return error(Code::kInvalidArgument, "--adapter: two adapters are named '", source.name, "', in '", other.dir,
                     "' and '", source.dir, "'; give them different names");
      }
    }
    adapters.push_back(std::move(source));
  }
  return adapters;
}

// The flag comes before the environment, and that before the command's default.
Result<Policy> read_policy(const Flags& flags, const Environment& environment, const char* otherwise) {
  if (const auto policy = flags.text("--backend")) return parse_policy(*policy, "--backend");
  if (!environment.backend.empty()) return parse_policy(environment.backend, "CADRE_MOE_BACKEND");
  return parse_policy(otherwise, "default");
}

Result<EngineOptions> read_engine(const Flags& flags, const Environment& environment, const char* default_policy) {
  EngineOptions engine;
  CADRE_ASSIGN(engine.model_dir, flags.required("--model"));
  CADRE_ASSIGN(engine.backend, read_policy(flags, environment, default_policy));
  std::optional<int> threads;
  CADRE_TRY(flags.number("--threads", &threads, 1, kMaxThreads));
  const auto hardware = static_cast<int>(std::min<std::int64_t>(std::thread::hardware_concurrency(), kMaxThreads));
  engine.threads = threads.value_or(std::max(1, hardware));
  return engine;
}

void add_start(Flags& flags) {
  flags.value("--rehearse", "off|quick|full",
              "run each chosen backend once on the layer's weights and compare it with the reference: on a small call "
              "(quick, the default), or on all sizes up to the largest batch (full)");
  flags.toggle("--verbose", "say at the start which backend runs which MoE layers and how its rehearsal went");
}

Status read_rehearse(const Flags& flags, EngineOptions* engine) {
  static constexpr std::pair<std::string_view, Rehearse> kWords[] = {
      {"off", Rehearse::kOff}, {"quick", Rehearse::kQuick}, {"full", Rehearse::kFull}};
  const auto text = flags.text("--rehearse");
  if (!text) return {};
  for (const auto& [word, meant] : kWords) {
    if (*text != word) continue;
    engine->rehearse = meant;
    return {};
  }
  return error(Code::kInvalidArgument, "--rehearse is '", *text, "', want off, quick or full");
}

Status read_limits(const Flags& flags, EngineOptions* engine) {
  std::optional<std::int64_t> length;
  CADRE_TRY(flags.number("--max-model-len", &length, 1));
  engine->max_model_len = length.value_or(0);
  engine->check_weights = flags.given("--check-weights");
  return read_rehearse(flags, engine);
}

Result<SamplingRequest> read_sampling(const Flags& flags) {
  SamplingRequest sampling;
  CADRE_TRY(flags.number("--max-tokens", &sampling.max_tokens, 1));
  CADRE_TRY(flags.number("--temperature", &sampling.temperature));
  CADRE_TRY(flags.number("--top-k", &sampling.top_k, -1));
  CADRE_TRY(flags.number("--top-p", &sampling.top_p));
  CADRE_TRY(flags.number("--min-p", &sampling.min_p));
  CADRE_TRY(flags.number("--repetition-penalty", &sampling.repetition_penalty));
  CADRE_TRY(flags.number("--presence-penalty", &sampling.presence_penalty));
  CADRE_TRY(flags.number("--frequency-penalty", &sampling.frequency_penalty));
  for (const std::string& text : flags.all("--logit-bias")) {
    CADRE_TRY(parse_logit_bias("--logit-bias", text, &sampling.logit_bias));
  }
  sampling.stop = flags.all("--stop");
  if (const auto seed = flags.text("--seed")) {
    CADRE_ASSIGN(sampling.seed, parse_seed("--seed", *seed));
  }
  if (flags.given("--ignore-eos")) sampling.ignore_eos = true;
  return sampling;
}

// ---- commands ---------------------------------------------------------------------------------------------------

void add_run(Flags& flags) {
  add_model(flags);
  add_adapters(flags);
  flags.value("--use", "NAME|all",
              "answer under this adapter; base is the model without one, all is the base and every adapter side by "
              "side; default: the adapter, where one is given");
  flags.group("Prompt (one of the first four)");
  flags.value("--prompt", "TEXT", "plain text to go on from");
  flags.value("--chat", "TEXT", "a user's message, put into the model's chat template");
  flags.value("--prompt-ids", "1,2,3", "token ids; needs no tokenizer");
  flags.value("--file", "FILE", "plain text from a file, taken as it is, its last line end too; - is standard input");
  flags.value("--system", "TEXT", "instructions before the message of --chat");
  add_sampling(flags);
  add_machine(flags, "auto");
  add_limits(flags);
  add_start(flags);
  flags.group("Output");
  flags.toggle("--json", "one JSON object for each answer, one a line");
}

Result<Command> read_run(const Flags& flags, const Environment& environment) {
  RunCommand run;
  CADRE_ASSIGN(run.engine, read_engine(flags, environment, "auto"));
  CADRE_TRY(read_limits(flags, &run.engine));
  CADRE_ASSIGN(run.engine.adapters, read_adapters(flags));
  CADRE_ASSIGN(run.use, parse_use(flags.text("--use").value_or(""), run.engine.adapters));
  run.engine.max_num_seqs = std::max(run.engine.max_num_seqs, static_cast<int>(run.use.size()));
  CADRE_ASSIGN(const std::string prompt, flags.exactly_one({"--prompt", "--chat", "--prompt-ids", "--file"}));
  const std::string value = *flags.text(prompt);
  if (prompt == "--prompt") run.request.prompt = value;
  if (prompt == "--chat") {
    if (const auto system = flags.text("--system")) run.request.chat.push_back({"system", *system});
    run.request.chat.push_back({"user", value});
  } else if (flags.given("--system")) {
    return error(Code::kInvalidArgument, "--system goes with --chat, got ", prompt);
  }
  if (prompt == "--file") {
    if (value.empty()) return error(Code::kInvalidArgument, "--file is empty, want a file's name, or -");
    run.prompt_file = value;
  }
  if (prompt == "--prompt-ids") {
    CADRE_ASSIGN(run.request.prompt_ids, parse_ids(prompt, value));
    std::error_code ignored;
    run.engine.need_tokenizer =
        std::filesystem::exists(std::filesystem::path(run.engine.model_dir) / "tokenizer.json", ignored);
  }
  CADRE_ASSIGN(run.request.sampling, read_sampling(flags));
  run.json = flags.given("--json");
  run.verbose = flags.given("--verbose");
  return Command(std::move(run));
}

void add_chat(Flags& flags) {
  add_model(flags);
  add_adapters(flags);
  flags.value("--use", "NAME",
              "the adapter to start with; /adapter switches; default: the adapter, where one is given");
  flags.group("Conversation");
  flags.value("--system", "TEXT", "instructions before the conversation");
  add_sampling(flags);
  add_machine(flags, "auto");
  add_limits(flags);
  add_start(flags);
}

Result<Command> read_chat(const Flags& flags, const Environment& environment) {
  ChatCommand chat;
  CADRE_ASSIGN(chat.engine, read_engine(flags, environment, "auto"));
  CADRE_TRY(read_limits(flags, &chat.engine));
  CADRE_ASSIGN(chat.engine.adapters, read_adapters(flags));
  const std::string use = flags.text("--use").value_or(chat.engine.adapters.size() > 1 ? "base" : "");
  if (use == "all")
    return error(Code::kInvalidArgument, "--use all is for cadre run; a chat has one adapter at a time");
  CADRE_ASSIGN(const std::vector<std::string> names, parse_use(use, chat.engine.adapters));
  chat.adapter = names.front();
  chat.engine.max_num_seqs = 1;
  chat.verbose = flags.given("--verbose");
  chat.system = flags.text("--system").value_or("");
  CADRE_ASSIGN(chat.sampling, read_sampling(flags));
  return Command(std::move(chat));
}

constexpr const char* kLogitsPolicy = "require cpu_reference";

void add_logits(Flags& flags) {
  add_model(flags);
  add_one_adapter(flags, "under this PEFT adapter; options as for cadre run");
  flags.group("Input (one of the first two)");
  flags.value("--ids", "1,2,3", "token ids of one sequence; writes the tensor logits, float32 [tokens, vocabulary]");
  flags.value("--prompts", "FILE.json", "an array of arrays of token ids; writes logits.0, logits.1, ...");
  flags.toggle("--step", "feed one token at a time, through the state of the sequence");
  add_machine(flags, kLogitsPolicy);
  flags.toggle("--check-weights", "look for NaN and infinity in every tensor of the model while loading");
  flags.group("Output");
  flags.value("--out", "FILE.safetensors", "the file to write (required)");
}

Result<Command> read_logits(const Flags& flags, const Environment& environment) {
  LogitsCommand logits;
  CADRE_ASSIGN(logits.engine, read_engine(flags, environment, kLogitsPolicy));
  logits.engine.check_weights = flags.given("--check-weights");
  logits.engine.need_tokenizer = false;
  logits.engine.max_num_seqs = 1;
  if (const auto dir = flags.text("--adapter")) {
    AdapterSource source = parse_adapter_dir(*dir);
    source.name = logits.adapter = "adapter";
    logits.engine.adapters.push_back(std::move(source));
  }
  CADRE_ASSIGN(const std::string input, flags.exactly_one({"--ids", "--prompts"}));
  if (input == "--ids") {
    CADRE_ASSIGN(logits.ids, parse_ids(input, *flags.text(input)));
  } else {
    CADRE_ASSIGN(logits.prompts_file, flags.required(input));
  }
  logits.step = flags.given("--step");
  CADRE_ASSIGN(logits.out, flags.required("--out"));
  return Command(std::move(logits));
}

void add_tokenize(Flags& flags) {
  flags.group("Model");
  flags.value("--model", "DIR", "a folder that holds tokenizer.json, or that file (required)");
  flags.group("Input (one of these)");
  flags.value("--text", "TEXT", "text to encode");
  flags.value("--cases", "FILE.json", "an array of objects with a field text; other fields are not looked at");
  flags.value("--decode", "1,2,3", "token ids to decode");
}

Result<Command> read_tokenize(const Flags& flags, const Environment&) {
  TokenizeCommand tokenize;
  CADRE_ASSIGN(tokenize.model_dir, flags.required("--model"));
  CADRE_ASSIGN(const std::string input, flags.exactly_one({"--text", "--cases", "--decode"}));
  if (input == "--text") tokenize.text = flags.text(input);
  if (input == "--cases") {
    CADRE_ASSIGN(tokenize.cases_file, flags.required(input));
  }
  if (input == "--decode") {
    CADRE_ASSIGN(tokenize.decode, parse_ids(input, *flags.text(input)));
  }
  return Command(std::move(tokenize));
}

void add_adapter_check(Flags& flags) {
  add_model(flags);
  add_one_adapter(flags, "the PEFT adapter (required); options as for cadre run");
  flags.group("Output");
  flags.toggle("--json", "one JSON object");
}

Result<Command> read_adapter_check(const Flags& flags, const Environment&) {
  AdapterCheckCommand check;
  CADRE_ASSIGN(check.model_dir, flags.required("--model"));
  CADRE_ASSIGN(const std::string dir, flags.required("--adapter"));
  check.adapter = parse_adapter_dir(dir);
  check.adapter.name = "adapter";
  check.json = flags.given("--json");
  return Command(std::move(check));
}

void add_explain(Flags& flags) {
  flags.group("Model (one of the first two)");
  flags.value("--model", "DIR", "folder of the checkpoint; only headers are read, no weights");
  flags.value("--spec", "FILE.json", "MoE layers described in JSON, as in examples/specs");
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

Result<Command> read_explain(const Flags& flags, const Environment& environment) {
  ExplainCommand explain;
  PlanOptions& plan = explain.plan;
  CADRE_ASSIGN(const std::string source, flags.exactly_one({"--model", "--spec"}));
  if (source == "--model") {
    CADRE_ASSIGN(plan.model_dir, flags.required(source));
  } else {
    CADRE_ASSIGN(explain.spec_file, flags.required(source));
  }
  CADRE_ASSIGN(plan.adapters, read_adapters(flags));
  if (source == "--spec" && !plan.adapters.empty()) {
    return error(Code::kInvalidArgument,
                 "--adapter goes with --model, got --spec; declare adapters with --max-loras, --max-lora-rank, "
                 "--targets");
  }
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

struct Entry {
  const char *parent, *name, *description;
  void (*add)(Flags&);
  Result<Command> (*read)(const Flags&, const Environment&);
};

// In the order of the help text.
constexpr Entry kCommands[] = {
    {"", "run", "Answers one prompt, under one adapter or under several side by side.", add_run, read_run},
    {"", "chat", "A conversation in the terminal; /help there lists what can be typed.", add_chat, read_chat},
    {"", "explain", "Shows which backend runs each MoE layer, why, and why not the others.", add_explain, read_explain},
    {"adapter", "check", "Says what an adapter holds, what binds where, and whether it fits the model.",
     add_adapter_check, read_adapter_check},
    {"", "tokenize", "Text to token ids and back, as a JSON array.", add_tokenize, read_tokenize},
    {"", "logits", "Writes the logits of whole sequences to a safetensors file.", add_logits, read_logits},
};

}  // namespace

Result<Command> parse_command_line(int argc, const char* const* argv, const Environment& environment) {
  LineParser parser("cadre runs Mixture-of-Experts language models with LoRA adapters.", kFooter);
  std::vector<const Flags*> flags;
  for (const Entry& entry : kCommands) {
    if (*entry.parent != '\0') parser.add_parent(entry.parent, "Commands about adapters: check.");
    Flags& command = parser.add_command(entry.parent, entry.name, entry.description);
    entry.add(command);
    flags.push_back(&command);
  }
  CADRE_ASSIGN(const LineParser::Parsed parsed, parser.parse(argc, argv));
  if (parsed.command == nullptr) return Command(PrintCommand{parsed.text});
  const auto at = std::find(flags.begin(), flags.end(), parsed.command) - flags.begin();
  return kCommands[at].read(*parsed.command, environment);
}

}  // namespace cadre::cli
