#include "cli/serve_options.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "cli/dummy_model.h"
#include "cli/hf_cache.h"
#include "cli/shared_flags.h"
#include "cli/supply.h"
#include "cli/values.h"
#include "cli/vllm_flags.h"
#include "io/json.h"

namespace cadre::cli {
namespace {

constexpr const char* kPrefix = "CADRE_SERVE_";
// A step takes longer with every sequence on a CPU, so beyond this many each answer would be slow, while the first of
// those that wait would not be much later. vLLM's 256 is a number for GPUs.
constexpr int kSequences = 32;
// Adapters that one batch can mix, where they may come at run time and no number is given.
constexpr int kSlots = 8;
constexpr std::int64_t kMaxRows = 1 << 20;
constexpr double kMaxSeconds = 7 * 86'400;

void add_models(Flags& flags) {
  flags.group("Model and adapters");
  flags.value_or_word("--model", "model", "DIR|ORG/NAME",
                      "folder of the checkpoint, or a model of the local Hugging Face cache, ORG/NAME@REVISION too; "
                      "nothing is downloaded (required)");
  add_dummy(flags);
  add_overrides(flags);
  flags.words("--served-model-name", "NAME",
              "what requests call the base model; the first is shown; default: ORG/NAME, or the folder's name");
  add_adapters(flags);
  flags.words("--lora-modules", "NAME=DIR", "the same as vLLM has it, also as {\"name\": \"NAME\", \"path\": \"DIR\"}");
  flags.words("--pin-adapter", "NAME", "adapters that always stay in their slot");
  flags.value("--adapter-dir", "DIR", "the only folder that adapters may be loaded from while the server runs");
  flags.value("--max-loras", "N",
              "adapters that one batch can mix, others take turns; default: those given, and at "
              "least 8 where adapters may be loaded while the server runs");
  flags.value("--max-lora-rank", "R", "largest rank on experts to be ready for; default: that of the adapters given");
  flags.value("--max-cpu-loras", "N",
              "adapters whose content stays in memory, the others are read again when used; default: all");
  flags.value("--max-adapters", "N", "adapters known at the same time; default: 1024");
  flags.value("--max-adapter-bytes", "SIZE", "size of an adapter loaded while the server runs; default: 4G");
  flags.value("--default-chat-template-kwargs", "JSON",
              "an object of variables for the chat template; a request's chat_template_kwargs come before it");
}

void add_engine(Flags& flags) {
  add_machine(flags, "auto");
  flags.value("--rehearse", "off|quick|full", "as for cadre run");
  flags.toggle("--batch-invariant", "require that the bits of an answer do not depend on what else is in its batch");
  flags.toggle("--check-weights", "look for NaN and infinity in every tensor of the model while loading");
  flags.group("Batches and memory");
  flags.value("--max-model-len", "N", "tokens of prompt and answer together; default: the model's context");
  flags.value("--max-num-seqs", "N", "sequences in one batch, others wait; default: 32");
  flags.value("--max-num-batched-tokens", "N",
              "rows in one step, of answers and of pieces of prompts; smaller keeps answers flowing while long prompts "
              "are read; default: 512");
  flags.value("--kv-cache-memory", "SIZE",
              "memory for the state of sequences, in bytes or with K, M or G; default: what the sequences need, up to "
              "4G");
  flags.pair("--enable-prefix-caching", "keep what was computed of prompts for others that begin alike; the default");
  flags.toggle("--share-prefix-cache",
               "among tenants too; then one can tell by the time it takes that another sent the same beginning");
}

void add_access(Flags& flags) {
  flags.group("Access (give secrets by environment or file: every user of the machine can read a command line)");
  flags.words("--api-key", "KEY", "requests must have one of these keys; default: none, everybody may ask");
  flags.value("--keys", "FILE", "keys with their limits and adapters, see cadre keys new");
  flags.value("--admin-key", "KEY", "who has it may load and unload adapters; default: none, nobody may");
}

void add_server(Flags& flags) {
  flags.group("Server");
  flags.value("--host", "ADDRESS", "address to listen on; default: 127.0.0.1, this machine only");
  flags.value("--port", "N", "default: 8000; 0 takes a free one");
  flags.value("--max-queued-requests", "N", "requests that wait; more are answered with 429; default: 256");
  flags.value("--request-timeout", "SECONDS", "a request ends after this with what it has; default: 0, never");
  flags.value("--drain-timeout", "SECONDS", "what running replies get after SIGTERM; default: 30");
  flags.value("--max-header-bytes", "SIZE", "default: 16K");
  flags.value("--max-body-bytes", "SIZE", "default: 16M");
  flags.value("--max-connections", "N", "default: 4096");
  flags.value("--header-timeout", "SECONDS", "for a request's header to arrive; default: 30");
  flags.value("--body-timeout", "SECONDS", "for its body; default: 60");
  flags.value("--idle-timeout", "SECONDS", "between the requests of a connection; default: 120");
  flags.value("--write-timeout", "SECONDS", "without the client taking a byte; default: 60");
  flags.group("Messages and settings");
  flags.value("--log-format", "text|json", "default: text");
  flags.value("--log-level", "debug|info|warning|error", "default: info");
  flags.pair("--enable-log-requests", "a line for each request, without its text; the default");
  flags.toggle("--verbose", "say at the start which backend runs which MoE layers and how its rehearsal went");
  flags.value("--config", "FILE",
              "YAML or JSON with flags as keys, such as max-num-seqs: 16. A flag comes before the environment "
              "(CADRE_SERVE_MAX_NUM_SEQS), and that before the file");
}

// vLLM's {"name", "path", "base_model_name"}, or NAME=DIR.
Result<AdapterSource> parse_module(const std::string& text, const std::vector<std::string>& base_names,
                                   std::vector<std::string>* notes) {
  constexpr const char* kFlag = "--lora-modules";
  if (!text.starts_with('{')) return parse_adapter(kFlag, text);
  JsonParseOptions options;
  options.code = Code::kInvalidArgument;
  options.duplicates = JsonParseOptions::Duplicates::kRefuse;
  CADRE_ASSIGN(const Json module, Json::parse(text, kFlag, options));
  for (const auto& [key, value] : module.members()) {
    if (key != "name" && key != "path" && key != "base_model_name") {
      return error(Code::kInvalidArgument, kFlag, ": unknown field '", key, "', want name, path and base_model_name");
    }
  }
  CADRE_ASSIGN(const std::string name, module.get_string("name"));
  CADRE_ASSIGN(const std::string path, module.get_string("path"));
  CADRE_ASSIGN(const std::string base, module.get_string_or("base_model_name", ""));
  if (!base.empty() && std::find(base_names.begin(), base_names.end(), base) == base_names.end()) {
    notes->push_back(std::string(kFlag) + ": '" + name + "' was made for the base model '" + base +
                     "', which is not a name of the one served");
  }
  CADRE_TRY(check_adapter_name(kFlag, name));
  if (path.empty()) return error(Code::kInvalidArgument, kFlag, ": the path of '", name, "' is empty");
  CADRE_TRY(want_folder(kFlag, path));
  return AdapterSource{.name = name, .dir = path};
}

Status read_adapters_and_names(const Flags& flags, const Environment& environment, ServeCommand* serve) {
  const std::string model = *flags.text("--model");
  std::vector<std::string>& names = serve->server.served_model_names;
  names = flags.all("--served-model-name");
  // A folder's whole path is nobody's business but the operator's.
  std::error_code ignored;
  const bool from_hub = !std::filesystem::exists(model, ignored) && is_hub_name(model);
  if (names.empty()) names = {from_hub ? without_revision(model) : folder_name(serve->engine.model_dir)};
  std::vector<AdapterSource>& adapters = serve->engine.adapters;
  CADRE_ASSIGN(adapters, read_adapters(flags));
  for (const std::string& text : flags.all("--lora-modules")) {
    CADRE_ASSIGN(AdapterSource source, parse_module(text, names, &serve->notes));
    adapters.push_back(std::move(source));
  }
  std::vector<std::string> taken;
  for (const std::string& name : names) {
    if (name.empty()) return error(Code::kInvalidArgument, "--served-model-name is empty, want a name");
    if (std::find(taken.begin(), taken.end(), name) != taken.end()) {
      return error(Code::kInvalidArgument, "--served-model-name: '", name, "' is given twice");
    }
    taken.push_back(name);
  }
  for (AdapterSource& adapter : adapters) {
    if (std::find(taken.begin(), taken.end(), adapter.name) != taken.end()) {
      return error(Code::kInvalidArgument, "two models are named '", adapter.name,
                   "'; give adapters names that differ from each other's and from the base model's");
    }
    taken.push_back(adapter.name);
    CADRE_ASSIGN(adapter.dir, find_model("--adapter", adapter.dir, hf_cache_dir(environment.variables)));
  }
  for (const std::string& name : flags.all("--pin-adapter")) {
    const auto at = std::find_if(adapters.begin(), adapters.end(), [&](const auto& a) { return a.name == name; });
    if (at == adapters.end()) {
      return error(Code::kNotFound, "--pin-adapter: no adapter is named '", name, "' (known: ", adapter_names(adapters),
                   ")");
    }
    at->pinned = true;
  }
  return {};
}

// A key travels in a header. The message does not show it.
Status check_key(const char* flag, const std::string& key) {
  constexpr std::size_t kMax = 512;
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!key.empty() && key.size() <= kMax && plain) return {};
  return error(Code::kInvalidArgument, flag, " is ", key.empty() ? "empty" : "not a key", ", want 1 to ", kMax,
               " visible ASCII characters without blanks");
}

Status read_access(const Flags& flags, server::ServeOptions* server) {
  server->api_keys = flags.all("--api-key");
  for (const std::string& key : server->api_keys) CADRE_TRY(check_key("--api-key", key));
  if (const auto key = flags.text("--admin-key")) {
    CADRE_TRY(check_key("--admin-key", *key));
    if (std::find(server->api_keys.begin(), server->api_keys.end(), *key) != server->api_keys.end()) {
      return error(Code::kInvalidArgument, "--admin-key is also an --api-key, want a key of its own");
    }
    server->admin_key = *key;
  }
  if (flags.given("--keys")) {
    CADRE_ASSIGN(server->keys_file, flags.required("--keys"));
  }
  if (flags.given("--adapter-dir")) {
    CADRE_ASSIGN(server->adapter_dir, flags.required("--adapter-dir"));
    std::error_code ignored;
    if (!std::filesystem::exists(server->adapter_dir, ignored)) {
      return error(Code::kNotFound, "--adapter-dir: the folder '", server->adapter_dir, "' is not there");
    }
    CADRE_TRY(want_folder("--adapter-dir", server->adapter_dir));
  }
  server->share_prefix_cache = flags.given("--share-prefix-cache");
  return {};
}

template <class T>
Status read_number(const Flags& flags, const char* name, std::int64_t min, std::int64_t max, T* field) {
  std::optional<T> value;
  CADRE_TRY(flags.number(name, &value, min, max));
  if (value) *field = *value;
  return {};
}

Status read_seconds(const Flags& flags, const char* name, bool zero_is_allowed, double* field) {
  std::optional<double> value;
  CADRE_TRY(flags.number(name, &value));
  if (!value) return {};
  if (*value < 0 || *value > kMaxSeconds || (*value == 0 && !zero_is_allowed)) {
    return error(Code::kInvalidArgument, name, " is '", *flags.text(name), "', want seconds, ",
                 zero_is_allowed ? "0" : "more than 0", " to ", static_cast<int>(kMaxSeconds));
  }
  *field = *value;
  return {};
}

template <class T>
Status read_size(const Flags& flags, const char* name, std::int64_t least, T* field) {
  const auto text = flags.text(name);
  if (!text) return {};
  CADRE_ASSIGN(const std::int64_t bytes, parse_bytes(name, *text));
  if (bytes < least) return error(Code::kInvalidArgument, name, " is '", *text, "', want at least ", least, " bytes");
  *field = static_cast<T>(bytes);
  return {};
}

Status read_word(const Flags& flags, const char* name, const std::vector<std::string>& known, std::string* field) {
  const auto text = flags.text(name);
  if (!text) return {};
  if (std::find(known.begin(), known.end(), *text) == known.end()) {
    std::string want;
    for (std::size_t i = 0; i < known.size(); ++i)
      want += (i == 0 ? "" : i + 1 < known.size() ? ", " : " or ") + known[i];
    return error(Code::kInvalidArgument, name, " is '", *text, "', want ", want);
  }
  *field = *text;
  return {};
}

Status read_server(const Flags& flags, server::ServeOptions* server) {
  if (flags.given("--host")) {
    CADRE_ASSIGN(server->host, flags.required("--host"));
    // As an address of IPv6 stands in a URL.
    if (server->host.size() > 2 && server->host.front() == '[' && server->host.back() == ']') {
      server->host = server->host.substr(1, server->host.size() - 2);
    }
  }
  CADRE_TRY(read_number(flags, "--port", 0, 65'535, &server->port));
  CADRE_TRY(read_number(flags, "--max-queued-requests", 0, 1'000'000, &server->max_queued_requests));
  CADRE_TRY(read_number(flags, "--max-adapters", 1, 1'000'000, &server->max_adapters));
  CADRE_TRY(read_size(flags, "--max-adapter-bytes", 1, &server->max_adapter_bytes));
  CADRE_TRY(read_seconds(flags, "--request-timeout", true, &server->request_timeout_s));
  CADRE_TRY(read_seconds(flags, "--drain-timeout", true, &server->drain_timeout_s));
  server::HttpLimits& http = server->http;
  CADRE_TRY(read_size(flags, "--max-header-bytes", 1 << 10, &http.max_header_bytes));
  CADRE_TRY(read_size(flags, "--max-body-bytes", 1 << 10, &http.max_body_bytes));
  CADRE_TRY(read_number(flags, "--max-connections", 1, 1'000'000, &http.max_connections));
  CADRE_TRY(read_seconds(flags, "--header-timeout", false, &http.header_timeout_s));
  CADRE_TRY(read_seconds(flags, "--body-timeout", false, &http.body_timeout_s));
  CADRE_TRY(read_seconds(flags, "--idle-timeout", false, &http.idle_timeout_s));
  CADRE_TRY(read_seconds(flags, "--write-timeout", false, &http.write_timeout_s));
  CADRE_TRY(read_word(flags, "--log-format", {"text", "json"}, &server->log_format));
  CADRE_TRY(read_word(flags, "--log-level", {"debug", "info", "warning", "error"}, &server->log_level));
  CADRE_ASSIGN(server->log_requests, flags.choice("--enable-log-requests", true));
  if (const auto text = flags.text("--default-chat-template-kwargs")) {
    JsonParseOptions options;
    options.code = Code::kInvalidArgument;
    CADRE_ASSIGN(const Json kwargs, Json::parse(*text, "--default-chat-template-kwargs", options));
    if (!kwargs.is_object()) {
      return error(Code::kInvalidArgument, "--default-chat-template-kwargs is ", describe(kwargs),
                   ", want an object, e.g. {\"enable_thinking\": false}");
    }
    server->default_chat_template_kwargs = kwargs.dump();
  }
  return {};
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

void add_notes(const server::ServeOptions& server, std::vector<std::string>* notes) {
  if (!is_loopback(server.host) && server.api_keys.empty() && server.keys_file.empty()) {
    notes->push_back("--host " + server.host + " without --api-key or --keys: whoever reaches this address may ask");
  }
  if (!server.adapter_dir.empty() && server.admin_key.empty()) {
    notes->push_back(
        "--adapter-dir without --admin-key: its adapters are read now and on SIGHUP, and no request may load any");
  }
}

Status read_all(const Flags& flags, const Environment& environment, ServeCommand* serve) {
  CADRE_ASSIGN(serve->engine, read_engine(flags, environment, "auto"));
  EngineOptions& engine = serve->engine;
  CADRE_TRY(read_limits(flags, kSequences, &engine));
  serve->server.max_num_seqs = engine.max_num_seqs;
  CADRE_TRY(read_number(flags, "--max-num-batched-tokens", 1, kMaxRows, &engine.max_num_batched_tokens));
  CADRE_TRY(read_number(flags, "--max-cpu-loras", 0, kMaxLoras, &engine.max_cpu_loras));
  CADRE_ASSIGN(engine.enable_prefix_caching, flags.choice("--enable-prefix-caching", true));
  engine.batch_invariant = flags.given("--batch-invariant");
  CADRE_TRY(read_access(flags, &serve->server));
  CADRE_TRY(read_server(flags, &serve->server));
  serve->server.max_num_seqs = engine.max_num_seqs;
  CADRE_TRY(read_adapters_and_names(flags, environment, serve));
  // Whoever declares adapters to come, and lets them come, does not want the first one to change the backends.
  const bool may_come = !serve->server.admin_key.empty() || !serve->server.adapter_dir.empty();
  engine.loras_on_experts = may_come && flags.given("--max-lora-rank");
  // Without a number every adapter that comes gets a slot of its own, for which the MoE layers are prepared again.
  if (may_come && !flags.given("--max-loras")) {
    engine.max_loras = std::max(kSlots, static_cast<int>(engine.adapters.size()));
  }
  serve->verbose = flags.given("--verbose");
  add_notes(serve->server, &serve->notes);
  return {};
}

}  // namespace

void add_serve(Flags& flags) {
  add_models(flags);
  add_engine(flags);
  add_access(flags);
  add_server(flags);
  add_vllm_flags(flags);
}

Result<Command> read_serve(const Flags& line, const Environment& environment) {
  Flags flags = line;
  ServeCommand serve;
  CADRE_TRY(supply_flags(environment, kPrefix, &flags, &serve.notes));
  CADRE_TRY(flags.with_origin(read_vllm_flags(&flags, &serve.notes)));
  CADRE_TRY(flags.with_origin(read_all(flags, environment, &serve)));
  return Command(std::move(serve));
}

}  // namespace cadre::cli
