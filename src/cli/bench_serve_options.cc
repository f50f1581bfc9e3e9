#include "cli/bench_serve_options.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "cli/values.h"

namespace cadre::cli {
namespace {

constexpr int kMaxLength = 1 << 20;
constexpr double kMaxSeconds = 7 * 86'400, kMaxRate = 1e6, kMaxShare = 1e9;
constexpr int kMaxTargets = 10'000;

// "64" or "16-128".
Result<server::IntRange> parse_range(const char* flag, const std::string& text) {
  const std::size_t dash = text.find('-', 1);
  CADRE_ASSIGN(const std::int64_t least, parse_int(flag, text.substr(0, dash), 1, kMaxLength));
  std::int64_t most = least;
  if (dash != std::string::npos) {
    CADRE_ASSIGN(most, parse_int(flag, text.substr(dash + 1), least, kMaxLength));
  }
  return server::IntRange{static_cast<int>(least), static_cast<int>(most)};
}

// "NAME" or "NAME=SHARE".
Status add_target(const char* flag, const std::string& text, std::vector<server::LoadTarget>* targets) {
  const std::size_t equals = text.rfind('=');
  server::LoadTarget target{.name = text.substr(0, equals)};
  if (equals != std::string::npos) {
    CADRE_ASSIGN(target.share, parse_real(flag, text.substr(equals + 1)));
  }
  if (target.name.empty() || target.share <= 0 || target.share > kMaxShare) {
    return error(Code::kInvalidArgument, flag, " is '", text, "', want NAME or NAME=SHARE with a share above 0");
  }
  for (const server::LoadTarget& other : *targets) {
    if (other.name == target.name) return error(Code::kInvalidArgument, flag, ": '", target.name, "' is given twice");
  }
  if (targets->size() >= kMaxTargets) return error(Code::kInvalidArgument, flag, ": more than ", kMaxTargets, " names");
  targets->push_back(std::move(target));
  return {};
}

Status read_positive(const Flags& flags, const char* name, double most, double* field) {
  std::optional<double> value;
  CADRE_TRY(flags.number(name, &value));
  if (!value) return {};
  if (*value > 0 && *value <= most) {
    *field = *value;
    return {};
  }
  return error(Code::kInvalidArgument, name, " is '", *flags.text(name), "', want a number above 0, at most ", most);
}

Status read_goodput(const Flags& flags, server::Goodput* goodput) {
  for (const std::string& text : flags.all("--goodput")) {
    const std::size_t colon = text.find(':');
    const std::string what = text.substr(0, colon);
    double* field = what == "ttft"   ? &goodput->ttft_ms
                    : what == "tpot" ? &goodput->tpot_ms
                    : what == "e2el" ? &goodput->e2el_ms
                                     : nullptr;
    if (field == nullptr || colon == std::string::npos) {
      return error(Code::kInvalidArgument, "--goodput is '", text, "', want ttft:MS, tpot:MS or e2el:MS");
    }
    CADRE_ASSIGN(*field, parse_real("--goodput", text.substr(colon + 1)));
    if (*field <= 0) return error(Code::kInvalidArgument, "--goodput is '", text, "', want milliseconds above 0");
  }
  return {};
}

// How much, and how fast.
Status read_amount(const Flags& flags, server::LoadOptions* load) {
  std::optional<int> concurrency;
  std::optional<std::int64_t> prompts;
  CADRE_TRY(flags.number("--max-concurrency", &concurrency, 1, 65'536));
  CADRE_TRY(flags.number("--num-prompts", &prompts, 1, 100'000'000));
  const bool endless_rate = flags.text("--request-rate") == "inf";  // as vLLM writes it
  if (!endless_rate) CADRE_TRY(read_positive(flags, "--request-rate", kMaxRate, &load->request_rate));
  CADRE_TRY(read_positive(flags, "--duration", kMaxSeconds, &load->duration_s));
  load->max_concurrency = concurrency.value_or(load->request_rate > 0 ? 0 : 1);
  load->num_prompts = prompts.value_or(load->duration_s > 0 ? 0 : 100);
  return {};
}

}  // namespace

void add_bench_serve(Flags& flags) {
  flags.group("Server");
  flags.value("--base-url", "URL", "default: http://127.0.0.1:8000");
  flags.value("--api-key", "KEY", "default: OPENAI_API_KEY from the environment, where nobody else can read it");
  flags.value("--endpoint", "chat|completions", "default: chat");
  flags.words("--model", "NAME[=SHARE]", "model or adapter to ask, with its share of the requests; at least one");
  flags.words("--adapter", "NAME[=SHARE]", "the same");
  flags.group("Load");
  flags.value("--max-concurrency", "N", "requests under way; default: 1, or no limit with --request-rate");
  flags.value("--request-rate", "R",
              "requests a second, at random times (a Poisson process); default: inf, each as soon as --max-concurrency "
              "allows");
  flags.value("--num-prompts", "N", "requests to send; default: 100, or as many as --duration takes");
  flags.value("--duration", "SECONDS", "send nothing after this time");
  flags.value("--request-timeout", "SECONDS", "for one answer; default: 300");
  flags.value("--seed", "N", "of times, models, lengths and words; default: 0");
  flags.group("Requests");
  flags.value("--input-len", "N|MIN-MAX", "tokens of a prompt of random words, about; default: 64");
  flags.value("--output-len", "N|MIN-MAX", "tokens of an answer at most; default: 32");
  flags.value("--prompts", "FILE.jsonl",
              "prompts in place of random words: on each line a JSON string or an object with prompt or messages, and "
              "max_tokens where it differs");
  flags.toggle("--ignore-eos", "answers go on to --output-len, where the server can do that");
  flags.value("--temperature", "X", "default: the model's");
  flags.group("Output");
  flags.words("--goodput", "ttft:MS|tpot:MS|e2el:MS", "count the requests that keep these limits");
  flags.toggle("--json", "one JSON object in place of the table");
  flags.value("--save-json", "FILE", "write that object to a file");
}

Result<Command> read_bench_serve(const Flags& flags, const Environment& environment) {
  BenchServeCommand bench;
  server::LoadOptions& load = bench.load;
  if (flags.given("--base-url")) {
    CADRE_ASSIGN(load.base_url, flags.required("--base-url"));
  }
  const auto key = environment.variables.find("OPENAI_API_KEY");
  load.api_key = flags.text("--api-key").value_or(key == environment.variables.end() ? "" : key->second);
  const bool plain = std::all_of(load.api_key.begin(), load.api_key.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!plain) {
    return error(Code::kInvalidArgument, "--api-key is not a key, want visible ASCII characters without blanks");
  }
  const std::string endpoint = flags.text("--endpoint").value_or("chat");
  if (endpoint != "chat" && endpoint != "completions") {
    return error(Code::kInvalidArgument, "--endpoint is '", endpoint, "', want chat or completions");
  }
  load.chat = endpoint == "chat";
  for (const char* flag : {"--model", "--adapter"}) {
    for (const std::string& text : flags.all(flag)) CADRE_TRY(add_target(flag, text, &load.targets));
  }
  if (load.targets.empty()) return flags.required("--model").status();
  CADRE_TRY(read_amount(flags, &load));
  CADRE_TRY(read_positive(flags, "--request-timeout", kMaxSeconds, &load.timeout_s));
  if (const auto seed = flags.text("--seed")) {
    CADRE_ASSIGN(load.seed, parse_seed("--seed", *seed));
  }
  if (const auto text = flags.text("--input-len")) {
    if (flags.given("--prompts")) return error(Code::kInvalidArgument, "--input-len is of random words, got --prompts");
    CADRE_ASSIGN(load.input_len, parse_range("--input-len", *text));
  }
  if (const auto text = flags.text("--output-len")) {
    CADRE_ASSIGN(load.output_len, parse_range("--output-len", *text));
  }
  if (flags.given("--prompts")) {
    CADRE_ASSIGN(load.prompts_file, flags.required("--prompts"));
  }
  load.ignore_eos = flags.given("--ignore-eos");
  if (const auto text = flags.text("--temperature")) {
    CADRE_ASSIGN(load.temperature, parse_real("--temperature", *text));
    if (load.temperature < 0) return error(Code::kInvalidArgument, "--temperature is '", *text, "', want 0 or more");
  }
  CADRE_TRY(read_goodput(flags, &load.goodput));
  bench.json = flags.given("--json");
  if (flags.given("--save-json")) {
    CADRE_ASSIGN(bench.save_file, flags.required("--save-json"));
    CADRE_TRY(check_out_file("--save-json", bench.save_file));
  }
  return Command(std::move(bench));
}

}  // namespace cadre::cli
