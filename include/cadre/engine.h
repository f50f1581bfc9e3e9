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
};

// Whether every chosen kernel runs once on the layer's weights before a request meets it, and is compared with the
// reference: on a small call, or on all of the token mix and the largest batch.
enum class Rehearse : std::uint8_t { kOff, kQuick, kFull };

struct EngineOptions {
  std::string model_dir;
  std::vector<AdapterSource> adapters;  // loaded at open; what they touch decides what the MoE layers must run
  Policy backend;
  // An embedder's own, before the built-in ones where both are as fast. They outlive the engine.
  std::vector<const Backend<MoeOp>*> backends;
  Rehearse rehearse = Rehearse::kQuick;
  int threads = 1;  // compute threads, the caller's included

  // What is declared beyond the adapters given: 0 takes what they need.
  int max_loras = 0;              // adapters usable at the same time
  int max_lora_rank = 0;          // largest rank on experts
  bool loras_on_experts = false;  // later adapters may touch the experts of every layer

  std::int64_t max_model_len = 0;  // tokens of prompt and answer; 0: the model's, lowered to what the cache holds
  int max_num_seqs = 8;            // sequences in one batch
  std::int64_t max_num_batched_tokens = 512;  // rows in one step: decode steps and prefill chunks
  std::int64_t kv_cache_memory = 0;           // bytes of sequence state; 0: up to 4 GiB
  std::int64_t memory_limit = 0;              // bytes all together; 0: what the machine has free
  bool check_weights = false;                 // look for NaN and infinity in every tensor of the model
  bool batch_invariant = false;               // require that a row's bits do not depend on other rows
  bool need_tokenizer = true;                 // false: token ids only, the folder needs no tokenizer.json
  std::function<void(double)> progress;       // called while loading with a share in [0, 1]
};

struct ChatMessage {
  std::string role, content;
};

// One question. Exactly one of prompt_ids, prompt and chat is given.
struct Request {
  std::optional<std::vector<std::int32_t>> prompt_ids;
  std::optional<std::string> prompt;  // plain text; special tokens are added as the tokenizer says
  std::vector<ChatMessage> chat;      // rendered with the chat template
  std::string adapter;                // empty: the base model
  SamplingRequest sampling;           // what is absent comes from generation_config.json
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
  std::optional<std::int32_t> token;          // a new token; the end token that stops a sequence is among them
  std::string text;                           // text that is now certain; whole characters only
  std::vector<TokenChance> logprobs;          // of the token, then of the most likely, where asked for
  FinishReason finish = FinishReason::kNone;  // not kNone on the request's last event
  Status error;                               // why, with kError: e.g. logits that are not finite
};

struct AdapterInfo {
  std::string name, dir, digest;
  std::uint64_t version = 0;  // of this load; a reload has a higher one
  int slot = 0, max_rank = 0;
  std::int64_t bytes = 0;
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

// Not thread-safe: one thread at a time.
class CADRE_API Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(EngineOptions options);
  ~Engine();

  // Loads an adapter under a new name, or under a known one to replace it: requests that run finish on the version they
  // began with, later ones get the new one. An adapter beyond the plan makes the MoE layers choose their backends
  // again. Where that fails everything stays as it was.
  Result<AdapterInfo> load_adapter(const AdapterSource& source);
  // New requests no longer find it; running ones finish on it, then its memory is freed.
  Status unload_adapter(std::string_view name);
  std::vector<AdapterInfo> adapters() const;

  // Queues a request; refuses one that can never run: unknown adapter, ids outside the vocabulary, a prompt that leaves
  // no room for an answer.
  Result<std::uint64_t> submit(Request request);
  // One batch through the model. Empty where nothing is queued or running.
  Result<std::vector<Event>> step();
  // The request gets no further token; its last event comes with the next step. False for an unknown id.
  bool cancel(std::uint64_t request);
  bool idle() const;

  // Logits float32 [ids.size(), vocab] of a sequence on its own, fed in pieces of `chunk` tokens (0: as large as the
  // batch allows). The context limit of the model is not enforced here.
  Result<std::vector<float>> logits(const std::vector<std::int32_t>& ids, std::string_view adapter,
                                    std::int64_t chunk = 0);

  Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special_tokens = true) const;
  Result<std::string> decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens = true) const;
  // The chat template's text: the adapter's folder is looked at first, then the model's.
  Result<std::string> chat_text(const std::vector<ChatMessage>& messages, std::string_view adapter) const;
  // The ids a request's prompt becomes, as submit makes them.
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const;

  const std::vector<LayerReport>& selection() const;
  std::string backend_names() const;  // of all MoE layers, joined: "cpu_reference"
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
  // Exactly one of the two. Of a checkpoint only the headers are read, no weights.
  std::string model_dir;
  std::optional<ModelSpec> spec;
  std::optional<DeviceCaps> device;  // absent: this machine, with all its threads
  Policy backend;
  std::vector<const Backend<MoeOp>*> backends;  // as in EngineOptions
  int tensor_parallel = 1;                      // ranks each expert is split over
  int expert_parallel = 1;                      // ranks the experts are spread over
  std::vector<AdapterSource> adapters;          // with model_dir only
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
CADRE_API Result<AdapterCheck> check_adapter(const std::string& model_dir, const AdapterSource& source);

}  // namespace cadre
