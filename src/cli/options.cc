#include "cli/options.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "cli/bench_serve_options.h"
#include "cli/dummy_model.h"
#include "cli/flags.h"
#include "cli/hf_cache.h"
#include "cli/keys_options.h"
#include "cli/serve_options.h"
#include "cli/shared_flags.h"
#include "cli/synth_options.h"
#include "cli/values.h"

namespace cadre::cli {
namespace {

constexpr const char* kFooter =
    "Exit status: 0 done; 1 adapter check: not usable, bench serve: no answer; 2 wrong usage; 3 not\n"
    "found; 4 malformed file; 5 not supported; 6 no backend; 7 over a limit; 8 not enough memory;\n"
    "9 conflict; 70 internal error; 74 output could not be written; 130 ended by Ctrl-C; 141 output closed.\n"
    "Environment: CADRE_MOE_BACKEND is a backend policy; --backend comes before it, and logits ignores it.\n"
    "CADRE_SERVE_PORT and so on are flags of serve.\n"
    "docs/command-line.md says more.";

void add_run(Flags& flags) {
  add_model(flags);
  add_dummy(flags);
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
  CADRE_ASSIGN(run.engine.adapters, read_adapters(flags));
  CADRE_ASSIGN(run.use, parse_use(flags.text("--use"), run.engine.adapters));
  CADRE_TRY(read_limits(flags, std::max(8, static_cast<int>(run.use.size())), &run.engine));
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
  if (!run.request.sampling.stop.empty() && !run.engine.need_tokenizer) {
    return error(Code::kInvalidArgument, "--stop ends an answer by its text, and ", run.engine.model_dir,
                 " has no tokenizer.json; leave --stop out, or add the file");
  }
  run.json = flags.given("--json");
  run.verbose = flags.given("--verbose");
  return Command(std::move(run));
}

void add_chat(Flags& flags) {
  add_model(flags);
  add_dummy(flags);
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
  CADRE_TRY(read_limits(flags, 1, &chat.engine));
  CADRE_ASSIGN(chat.engine.adapters, read_adapters(flags));
  std::optional<std::string> use = flags.text("--use");
  if (!use && chat.engine.adapters.size() > 1) use = "base";
  if (use == "all")
    return error(Code::kInvalidArgument, "--use all is for cadre run; a chat has one adapter at a time");
  CADRE_ASSIGN(const std::vector<std::string> names, parse_use(use, chat.engine.adapters));
  chat.adapter = names.front();
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
  add_machine(flags, kLogitsPolicy, PolicySource::kFlag);
  flags.toggle("--check-weights", "look for NaN and infinity in every tensor of the model while loading");
  flags.group("Output");
  flags.value("--out", "FILE.safetensors", "the file to write (required)");
}

// Numbers to compare with must not depend on what is set around the command: the environment's policy is not read.
Result<Command> read_logits(const Flags& flags, const Environment& outside) {
  LogitsCommand logits;
  Environment environment = outside;
  environment.backend.clear();
  CADRE_ASSIGN(logits.engine, read_engine(flags, environment, kLogitsPolicy));
  logits.engine.check_weights = flags.given("--check-weights");
  logits.engine.need_tokenizer = false;
  logits.engine.max_num_seqs = 1;
  if (const auto dir = flags.text("--adapter")) {
    CADRE_ASSIGN(AdapterSource source, parse_adapter_dir("--adapter", *dir));
    CADRE_TRY(want_folder("--adapter", source.dir));
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
  CADRE_TRY(check_out_file("--out", logits.out));
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

Result<Command> read_tokenize(const Flags& flags, const Environment& environment) {
  TokenizeCommand tokenize;
  CADRE_ASSIGN(const std::string model, flags.required("--model"));  // a folder or a file
  CADRE_ASSIGN(tokenize.model_dir, find_model("--model", model, hf_cache_dir(environment.variables)));
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

// "DIR[,option=value]...", called by the folder's name, or "NAME=DIR[,option=value]..." as cadre run takes it.
Result<AdapterSource> parse_named_dir(const std::string& flag, const std::string& text) {
  CADRE_ASSIGN(AdapterSource source, parse_adapter_dir(flag, text));
  std::error_code ignored;
  const std::size_t equals = source.dir.find('=');
  if (equals != std::string::npos && equals > 0 && source.dir.find('/') > equals &&
      !std::filesystem::exists(source.dir, ignored)) {
    return parse_adapter(flag, text);
  }
  source.name = folder_name(source.dir);
  return source;
}

void add_adapter_check(Flags& flags) {
  add_model(flags);
  add_one_adapter(flags, "the PEFT adapter (required); options as for cadre run, and NAME= before DIR gives a name");
  flags.group("Output");
  flags.toggle("--json", "one JSON object");
}

Result<Command> read_adapter_check(const Flags& flags, const Environment& environment) {
  AdapterCheckCommand check;
  CADRE_ASSIGN(check.model_dir, read_model(flags, environment));
  CADRE_ASSIGN(check.hf_overrides, read_overrides(flags));
  CADRE_ASSIGN(const std::string text, flags.required("--adapter"));
  CADRE_ASSIGN(check.adapter, parse_named_dir("--adapter", text));
  check.json = flags.given("--json");
  return Command(std::move(check));
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
    {"", "serve", "Serves a model and its adapters over HTTP, as OpenAI's clients speak it.", add_serve, read_serve},
    {"bench", "serve", "Sends load to a server and says how fast it answers.", add_bench_serve, read_bench_serve},
    {"keys", "new", "Makes a key for a client of cadre serve, with its limits.", add_keys_new, read_keys_new},
    {"", "synth", "Writes a random model of a family, with tokenizer and adapters, to try things out.", add_synth,
     read_synth},
    {"", "logits", "Writes the logits of whole sequences to a safetensors file.", add_logits, read_logits},
};

// "Commands about adapters: check."
std::string parent_text(std::string_view parent) {
  std::string names;
  for (const Entry& entry : kCommands) {
    if (entry.parent == parent) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  const char* what = parent == "bench"  ? "Measuring: "
                     : parent == "keys" ? "Keys of clients: "
                                        : "Commands about adapters: ";
  return what + names + ".";
}

}  // namespace

Result<Command> parse_command_line(int argc, const char* const* argv, const Environment& environment) {
  LineParser parser("cadre runs Mixture-of-Experts language models with LoRA adapters.", kFooter);
  std::vector<const Flags*> flags;
  for (const Entry& entry : kCommands) {
    if (*entry.parent != '\0') parser.add_parent(entry.parent, parent_text(entry.parent));
    Flags& command = parser.add_command(entry.parent, entry.name, entry.description);
    entry.add(command);
    flags.push_back(&command);
  }
  // CLI11 answers --version without a look at the rest of the line.
  if (argc > 2 && std::string_view(argv[1]) == "--version") {
    return error(Code::kInvalidArgument, "unexpected '", argv[2], "', want nothing after --version");
  }
  CADRE_ASSIGN(const LineParser::Parsed parsed, parser.parse(argc, argv));
  if (parsed.command == nullptr) return Command(PrintCommand{parsed.text});
  const auto at = std::find(flags.begin(), flags.end(), parsed.command) - flags.begin();
  return kCommands[at].read(*parsed.command, environment);
}

}  // namespace cadre::cli
