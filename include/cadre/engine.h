// Engine: a model with its adapters, generating for many requests at once. It is step-driven: nothing happens but in
// calls, on the caller's thread, and no thread is started unless EngineOptions::threads asks for more than one.
#pragma once

#include <cadre/sampling.h>
#include <cadre/selection.h>
#include <cadre/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cadre {

// A backend of MoE layers. Whoever writes one includes "moe/experts.h", see docs/adding-a-backend.md; others only hand
// it on.
template <class Op>
class Backend;
struct MoeOp;

struct AdapterSource {
  std::string name;
  std::string dir;
  std::string options;  // "orientation=swapped,b_order=expert_major"; may be empty
  bool pinned = false;  // never leaves its slot
};

// Whether every chosen kernel runs once on the layer's weights before a request meets it, and is compared with the
// reference: on a small call, or on all of the token mix and the largest batch.
enum class Rehearse : std::uint8_t { kOff, kQuick, kFull };

struct EngineOptions {
  std::string model_dir;
  std::string hf_overrides;             // fields of config.json in place of the file's, in JSON; may be empty
  std::vector<AdapterSource> adapters;  // loaded at open; what they touch decides what the MoE layers must run
  Policy backend;
  // An embedder's own, before the built-in ones where both are as fast. They outlive the engine.
  std::vector<const Backend<MoeOp>*> backends;
  Rehearse rehearse = Rehearse::kQuick;
  int threads = 1;  // compute threads, the caller's included

  // What is declared beyond the adapters given: 0 takes what they need.
  int max_loras = 0;              // slots: adapters that one batch can mix. More may be loaded; they take turns
  int max_cpu_loras = 0;          // adapters whose content stays in memory; the others are read again when used. 0: all
  int max_lora_rank = 0;          // largest rank on experts
  bool loras_on_experts = false;  // later adapters may touch the experts of every layer

  std::int64_t max_model_len = 0;  // tokens of prompt and answer; 0: the model's, lowered to what the cache holds
  int max_num_seqs = 8;            // sequences in one batch
  std::int64_t max_num_batched_tokens = 512;  // rows in one step: decode steps and prefill chunks
  std::int64_t kv_cache_memory = 0;           // bytes of sequence state; 0: up to 4 GiB
  // Keep what was computed of a prompt for later ones that begin alike, of the same adapter version and tenant.
  bool enable_prefix_caching = true;
  std::int64_t memory_limit = 0;  // bytes all together; 0: what the machine has free
  // Random weights in place of the folder's, made in memory: of a folder, config.json is enough, and a tokenizer where
  // one is wanted. The same seed makes the same model.
  bool dummy_weights = false;
  std::uint64_t dummy_seed = 0;
  bool check_weights = false;            // look for NaN and infinity in every tensor of the model
  bool batch_invariant = false;          // require that a row's bits do not depend on other rows
  bool need_tokenizer = true;            // false: token ids only, the folder needs no tokenizer.json
  std::function<void(double)> progress;  // called while loading with a share in [0, 1]
};

struct ChatMessage {
  std::string role, content;
};

// A conversation as a chat template takes it, in JSON.
struct ChatInput {
  std::string messages_json;  // an array of {"role", "content", ...}
  std::string tools_json;     // an array of {"type": "function", "function": {...}}; "" for none
  std::string kwargs_json;    // an object of further template variables ("enable_thinking"); "" for none
  bool add_generation_prompt = true;
};

// One version of an adapter. Whoever holds one keeps that version usable, even after it was replaced or unloaded.
struct LoadedAdapter;
using AdapterRef = std::shared_ptr<LoadedAdapter>;
// An adapter that was read and checked and is not in use yet.
struct ReadAdapter;

// One question. Exactly one of prompt_ids, prompt and chat is given.
struct Request {
  std::optional<std::vector<std::int32_t>> prompt_ids;
  std::optional<std::string> prompt;  // plain text; special tokens are added as the tokenizer says
  std::vector<ChatMessage> chat;      // rendered with the chat template
  std::string adapter;                // empty: the base model
  AdapterRef version;                 // in place of the name's current version, where given; see Engine::find_adapter
  SamplingRequest sampling;           // what is absent comes from generation_config.json
  std::uint32_t choice = 0;           // numbers the answers to one question: each draws with other noise (OpenAI's n)
  // Log-probabilities of the prompt's own tokens, as SamplingParams::logprobs; the prompt is then computed in full.
  std::optional<std::int32_t> prompt_logprobs;
  int priority = 0;    // lower numbers go first, as in vLLM
  std::string tenant;  // whose share of the machine is used
  // What was computed of a prompt serves later prompts of the same salt only: whoever can measure time could otherwise
  // learn what others ask.
  std::string cache_salt;
  // Seconds from submit after which the request ends with what it has, its last event saying so; 0: none.
  double timeout_s = 0;
};

enum class FinishReason : std::uint8_t { kNone, kStop, kLength, kCancelled, kError };
CADRE_API std::string_view to_string(FinishReason reason);  // "stop", "length", "cancelled", "error"

struct TokenChance {
  std::int32_t id = 0;
  float logprob = 0;
};

// What a step brought for one request.
struct Event {
  std::uint64_t request = 0;
  std::optional<std::int32_t> token;  // a new token; the end token that stops a sequence is among them
  std::string text;                   // text that is now certain; whole characters only
  std::vector<TokenChance> logprobs;  // of the token, then of the most likely, where asked for
  // With the first token, where asked for: for every token of the prompt but the first, as `logprobs`.
  std::vector<std::vector<TokenChance>> prompt_logprobs;
  std::int64_t cached_tokens = 0;             // of the prompt, taken from the prefix cache; with the first token
  double queue_seconds = 0;                   // from submit until it first ran; with the first token
  FinishReason finish = FinishReason::kNone;  // not kNone on the request's last event
  std::string stop;                           // with kStop: the stop string that was found; empty for a token
  Status error;                               // why, with kError: e.g. logits that are not finite
};

struct AdapterInfo {
  std::string name, dir, digest;
  std::uint64_t version = 0;  // of this load; a reload has a higher one
  int slot = 0;               // -1: not in one at present
  int max_rank = 0;
  std::int64_t bytes = 0;
  bool in_memory = true;  // false: read again from `dir` when it is used
  bool pinned = false;
  double load_seconds = 0;  // reading and making it usable
};

// Numbers for operators. Counters only grow.
struct AdapterLoad {
  std::string name;  // empty: the base model
  int running = 0, waiting = 0;
};
struct BackendTime {
  std::string backend;  // of MoE layers
  double seconds = 0;   // in its kernels, all layers together
  std::int64_t calls = 0;
};
struct EngineStats {
  int running = 0, waiting = 0;       // requests
  int slots = 0, slots_used = 0;      // of adapters
  std::int64_t pages = 0;             // of the cache
  std::int64_t pages_in_use = 0;      // held by requests
  std::int64_t pages_cached = 0;      // held by the prefix cache alone; given up when needed
  std::int64_t prefix_queries = 0;    // counter: prompt tokens looked up
  std::int64_t prefix_hits = 0;       // counter: prompt tokens found
  std::int64_t preemptions = 0;       // counter: requests that gave way and were computed again
  std::int64_t steps = 0, rows = 0;   // counters
  std::int64_t prompt_tokens = 0;     // counter: rows of prompts, without cached ones
  std::int64_t generated_tokens = 0;  // counter
  std::vector<AdapterLoad> adapters;  // with running or waiting requests
  std::vector<BackendTime> backends;
};

// What an engine's memory goes to, in bytes.
struct MemoryReport {
  std::int64_t weights = 0, adapters = 0, cache = 0, workspace = 0;
  std::int64_t cache_tokens = 0;  // that fit in the cache, all requests together
};

// MoE layers that ask the same and so got the same.
struct LayerReport {
  std::vector<int> layers;
  LayerSpec spec;
  Deployment deployment;
  Selection selection;
  double rehearsal_seconds = 0;  // what the rehearsal took
  double rehearsal_error = 0;    // largest difference from the reference, over a row's norm
};

// One thread at a time, but for what is marked "any thread".
class CADRE_API Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(EngineOptions options);
  ~Engine();

  // Loads an adapter under a new name, or under a known one to replace it: requests that run finish on the version they
  // began with, later ones get the new one. An adapter beyond the plan makes the MoE layers choose their backends
  // again. Where that fails everything stays as it was.
  Result<AdapterInfo> load_adapter(const AdapterSource& source);
  // The same in two steps, so that reading a large file does not hold up a step. Reading: any thread.
  // `read_from`, where given, is read in place of source.dir, which is what is remembered.
  Result<std::shared_ptr<ReadAdapter>> read_adapter(const AdapterSource& source,
                                                    const std::string& read_from = {}) const;
  Result<AdapterInfo> load_adapter(std::shared_ptr<ReadAdapter> adapter);
  // New requests no longer find it; running ones finish on it, then its memory is freed.
  Status unload_adapter(std::string_view name);
  std::vector<AdapterInfo> adapters() const;  // any thread
  // The present version of an adapter; null for the base model (an empty name). Any thread.
  Result<AdapterRef> find_adapter(std::string_view name) const;
  AdapterInfo adapter_info(const AdapterRef& adapter) const;  // not of null; any thread

  // Queues a request; refuses one that can never run: unknown adapter, ids outside the vocabulary, a prompt that leaves
  // no room for an answer.
  Result<std::uint64_t> submit(Request request);
  // One batch through the model. Empty where nothing is queued or running.
  Result<std::vector<Event>> step();
  // The request gets no further token; its last event comes with the next step. False for an unknown id.
  bool cancel(std::uint64_t request);
  bool idle() const;
  // The last step had nothing to run although requests wait: for a slot, for memory, or for an adapter being read.
  bool stalled() const;
  EngineStats stats() const;
  MemoryReport memory() const;

  // Logits float32 [ids.size(), vocab] of a sequence on its own, fed in pieces of `chunk` tokens (0: as large as the
  // batch allows). The context limit of the model is not enforced here.
  Result<std::vector<float>> logits(const std::vector<std::int32_t>& ids, std::string_view adapter,
                                    std::int64_t chunk = 0);

  // Text and tokens. Any thread.
  Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special_tokens = true) const;
  Result<std::string> decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens = true) const;
  // A token's own text, which may be a part of a character.
  Result<std::string> token_text(std::int32_t id) const;
  // A longer text certainly has more tokens than the context holds.
  std::size_t max_prompt_bytes() const;
  // The chat template's text: the adapter's own template, as it was when loaded, comes before the model's.
  Result<std::string> chat_text(const std::vector<ChatMessage>& messages, std::string_view adapter) const;
  Result<std::string> chat_text(const ChatInput& chat, const AdapterRef& adapter) const;
  // The ids a request's prompt becomes, as submit makes them.
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const;

  const std::vector<LayerReport>& selection() const;
  std::string backend_names() const;  // of all MoE layers, joined: "cpu_reference"; any thread
  std::int64_t vocab_size() const;
  std::int64_t max_model_len() const;
  std::string model_type() const;
  std::vector<std::string> notes() const;  // what the user should know: a lowered limit, adapter notes, warnings

 private:
  struct __attribute__((visibility("hidden"))) Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The gate's answer for one layer, as `cadre explain` shows it. kNoBackend with every reason where no backend admits
// it; `all` then still holds the candidates, where given.
CADRE_API Result<Selection> select(const LayerSpec& spec, const Deployment& deployment, const Policy& policy,
                                   Selection* all = nullptr);

// MoE layers of one kind.
struct LayerGroup {
  std::vector<int> layers;
  LayerSpec spec;
};
// What a plan needs to know of a model whose checkpoint is not here.
struct ModelSpec {
  std::string name;
  std::vector<LayerGroup> layers;
};

// A deployment that is planned, on this machine or on another. What is given twice, by the adapters and by the fields
// of declared demand, adds up.
struct PlanOptions {
  // Exactly one of the three. Of a checkpoint only the headers are read, no weights; a config.json as text is enough
  // for a checkpoint that is not here.
  std::string model_dir;
  std::string config_json;
  std::optional<ModelSpec> spec;
  std::string hf_overrides;          // as in EngineOptions; not with spec
  std::optional<DeviceCaps> device;  // absent: this machine, with all its threads
  Policy backend;
  std::vector<const Backend<MoeOp>*> backends;  // as in EngineOptions
  int tensor_parallel = 1;                      // ranks each expert is split over
  int expert_parallel = 1;                      // ranks the experts are spread over
  std::vector<AdapterSource> adapters;          // not with spec
  int max_loras = 0;
  int max_lora_rank = 0;
  std::uint8_t expert_targets = 0;  // bits of Projection: what declared adapters touch of every layer's experts
  std::vector<int> tokens;          // rows in one call, each as likely; empty: 8 and max_num_batched_tokens
  std::int64_t max_num_batched_tokens = 512;
  bool batch_invariant = false;
};

struct Plan {
  std::string name;  // the model's type, or the spec's name
  DeviceCaps device;
  Policy policy;
  std::vector<LayerReport> layers;  // `chosen` is empty where no backend admits the layer
  Status no_backend;                // why, of the first such layer; ok where every layer has a backend
  std::vector<std::string> notes;   // what the user should know: fields of the config that were overridden
};
// What `open` would choose, and why, without loading.
CADRE_API Result<Plan> plan(const PlanOptions& options);
// {"device", "policy", "layers": [{"layers", "spec", "chosen", "candidates", "warnings"}]}, see docs/selection.md.
CADRE_API std::string to_json(const Plan& plan);

// Specs as JSON text, see docs/selection.md. Unknown fields are refused by name.
CADRE_API Result<LayerSpec> layer_spec_from_json(std::string_view json);
// One layer's spec, or {"name": "...", "layers": [{"layers": [0, 1], "spec": {...}}]}.
CADRE_API Result<ModelSpec> model_spec_from_json(std::string_view json);
CADRE_API std::string to_json(const LayerSpec& spec);
CADRE_API std::string to_json(const Selection& selection);

// What this machine is.
CADRE_API DeviceCaps this_device();
// This machine by its name, or one of the built-in descriptions: "cpu-avx512", "h100". kNotFound lists the known.
CADRE_API Result<DeviceCaps> find_device(std::string_view name);
CADRE_API std::vector<DeviceCaps> described_devices();

// Format and bindings of an adapter against a model of which only the headers are read. An adapter that was read and
// refused is an answer; a folder that is not there is an error.
struct AdapterCheck {
  bool usable = false;
  std::string text;  // for people
  std::string json;  // one object; it always has "usable"
};
CADRE_API Result<AdapterCheck> check_adapter(const std::string& model_dir, const AdapterSource& source,
                                             const std::string& hf_overrides = {});

}  // namespace cadre
