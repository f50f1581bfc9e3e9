// The C interface: the engine of cadre/engine.h and the gate's answers, as C11 with opaque handles. docs/embedding.md
// has a whole program.
//
// Errors. A function that can fail returns a cadre_code and writes its results only on CADRE_OK, except where it says
// otherwise; cadre_last_error() is the message. A NULL where something must be given is CADRE_INVALID_ARGUMENT. No C++
// exception leaves the library.
//
// Ownership. What a function takes is copied before it returns. A char* that a function gives is freed with
// cadre_string_free, ids with cadre_ids_free. A const pointer is only lent, for as long as its function says.
//
// Threads. An engine is used by one thread at a time; different engines, and the functions without an engine, by any
// number of threads at once. Nothing happens but in calls.
//
// Text is UTF-8 and ends at its first NUL byte. Sizes are in bytes, counts in elements. A flag is 0 or 1.
//
// Structures that a function takes begin with struct_size: set it to sizeof the structure and every other field that
// does not matter to 0, which is its default. Fields are only ever added at the end. So a program built with an older
// header keeps its meaning; one built with a newer header gets CADRE_INVALID_ARGUMENT if it sets what the library does
// not know.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The same as in cadre/status.h, so that both may be included.
#if defined(__GNUC__)
#define CADRE_API __attribute__((visibility("default")))
#else
#define CADRE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- errors -----------------------------------------------------------------------------------------------------

// As cadre::Code.
typedef enum cadre_code {
  CADRE_OK = 0,
  CADRE_INVALID_ARGUMENT = 1,  // a value that cannot be honoured as given
  CADRE_NOT_FOUND = 2,         // a file, model, adapter or request that is not there
  CADRE_INVALID_FILE = 3,      // a file whose content is malformed or contradicts itself
  CADRE_UNSUPPORTED = 4,       // well-formed, understood, and not something this build can do
  CADRE_NO_BACKEND = 5,        // the gate refused every backend, or the one that was required
  CADRE_LIMIT_EXCEEDED = 6,    // prompt longer than the context, file over its limit
  CADRE_OUT_OF_MEMORY = 7,     // foreseen before allocation, or met in a call
  CADRE_CONFLICT = 8,          // a name taken, an adapter busy
  CADRE_CANCELLED = 9,         // stopped by the caller
  CADRE_INTERNAL = 10,         // a bug in cadre; close the engine
} cadre_code;

// "ok", "invalid_argument", ... of a cadre_code; "unknown" for any other number. Never freed.
CADRE_API const char* cadre_code_name(int code);

// What the last failed call on this thread says, e.g. "no adapter is named 'x'; loaded: elements"; "" before the first.
// Lent until the next failed call on this thread.
CADRE_API const char* cadre_last_error(void);

// "0.1.0", the version of the library that runs. Never freed.
CADRE_API const char* cadre_version(void);

// Both take NULL.
CADRE_API void cadre_string_free(char* text);
CADRE_API void cadre_ids_free(int32_t* ids);

// ---- engine -----------------------------------------------------------------------------------------------------

typedef struct cadre_engine cadre_engine;

// How much of every chosen backend is compared with the reference while a model is opened.
enum {
  CADRE_REHEARSE_QUICK = 0,  // one small call
  CADRE_REHEARSE_FULL = 1,   // all of the token mix and the largest batch
  CADRE_REHEARSE_OFF = 2,
};

typedef struct cadre_engine_options {
  size_t struct_size;
  const char* model_dir;  // folder of a Hugging Face checkpoint; must be given
  const char* backend;    // "auto" (also NULL), "require NAME", "prefer NAME" or "exclude NAME[,NAME]"
  int32_t rehearse;       // CADRE_REHEARSE_QUICK, ...
  int32_t threads;        // compute threads, the caller's included; 0: 1, none is started

  // Adapters to come, see cadre_engine_load_adapter. What is declared here needs no new selection of backends later.
  int32_t max_loras;         // slots: adapters that one batch can mix; others take turns; 0: one for each
  int32_t max_lora_rank;     // largest rank on experts
  int32_t loras_on_experts;  // flag: adapters may touch the experts of every layer

  int64_t max_model_len;           // tokens of prompt and answer; 0: the model's, lowered to what the cache holds
  int32_t max_num_seqs;            // sequences in one batch; 0: 8
  int64_t max_num_batched_tokens;  // rows in one step; 0: 512
  int64_t kv_cache_memory;         // bytes of sequence state; 0: up to 4 GiB
  int64_t memory_limit;            // bytes all together; 0: what the machine has free
  int32_t check_weights;           // flag: look for NaN and infinity in every tensor of the model
  int32_t batch_invariant;         // flag: require that a row's bits do not depend on other rows
  int32_t no_tokenizer;            // flag: ids only, the folder needs no tokenizer.json

  // Called by cadre_engine_open, and not after it, with a share in [0, 1] that only grows; NULL: not called.
  void (*progress)(double share, void* user);
  void* progress_user;

  int32_t max_cpu_loras;      // adapters whose content stays in memory, others are read again when used; 0: all
  int32_t no_prefix_caching;  // flag: nothing that was computed of a prompt is kept for later ones
  const char* hf_overrides;   // a JSON object: fields of config.json in place of the file's; may be NULL
} cadre_engine_options;

// Opens a model. *engine is NULL on failure.
CADRE_API cadre_code cadre_engine_open(const cadre_engine_options* options, cadre_engine** engine);
// Takes NULL. Requests that still run end without an event.
CADRE_API void cadre_engine_close(cadre_engine* engine);

// Loads the PEFT adapter in `dir` under a new name, or under a known one to replace it: requests that run finish on the
// version they began with. `options` is NULL or e.g. "orientation=swapped,b_order=expert_major". On failure everything
// stays as it was.
CADRE_API cadre_code cadre_engine_load_adapter(cadre_engine* engine, const char* name, const char* dir,
                                               const char* options);
// New requests no longer find it; running ones finish on it.
CADRE_API cadre_code cadre_engine_unload_adapter(cadre_engine* engine, const char* name);

// What is loaded and what runs it, as a JSON object: model_type, vocab_size, max_model_len, backends, notes (what the
// user should know), adapters, and layers: each distinct MoE layer with its spec, the backend chosen and why not the
// others.
CADRE_API cadre_code cadre_engine_info_json(const cadre_engine* engine, char** json);

// ---- requests ---------------------------------------------------------------------------------------------------

// Bits of cadre_sampling.set.
enum {
  CADRE_SET_TEMPERATURE = 1 << 0,
  CADRE_SET_TOP_K = 1 << 1,
  CADRE_SET_TOP_P = 1 << 2,
  CADRE_SET_MIN_P = 1 << 3,
  CADRE_SET_REPETITION_PENALTY = 1 << 4,
  CADRE_SET_PRESENCE_PENALTY = 1 << 5,
  CADRE_SET_FREQUENCY_PENALTY = 1 << 6,
  CADRE_SET_SEED = 1 << 7,
  CADRE_SET_MAX_TOKENS = 1 << 8,
  CADRE_SET_MIN_TOKENS = 1 << 9,
  CADRE_SET_LOGPROBS = 1 << 10,
  CADRE_SET_IGNORE_EOS = 1 << 11,
  CADRE_SET_INCLUDE_STOP = 1 << 12,
};

// How tokens are chosen. cadre/sampling.h says what each field does and what is decided where it is absent, first of
// all by the model's generation_config.json. The fields up to include_stop count only where their bit is in `set`,
// because 0 means something there: a temperature of 0 is greedy.
typedef struct cadre_sampling {
  size_t struct_size;
  uint32_t set;  // CADRE_SET_TEMPERATURE | ...
  double temperature;
  int32_t top_k;
  double top_p;
  double min_p;
  double repetition_penalty;
  double presence_penalty;
  double frequency_penalty;
  uint64_t seed;
  int32_t max_tokens;
  int32_t min_tokens;
  int32_t logprobs;      // log-probabilities to report: of the token and of this many most likely ones
  int32_t ignore_eos;    // flag
  int32_t include_stop;  // flag

  const char* const* stop;  // [stop_count] texts that end the answer
  size_t stop_count;
  const int32_t* stop_token_ids;  // [stop_token_id_count]
  size_t stop_token_id_count;
  const int32_t* logit_bias_ids;  // [logit_bias_count] token ids, each once
  const float* logit_bias;        // [logit_bias_count] added to the logit of each, -100 to 100
  size_t logit_bias_count;
} cadre_sampling;

// Never gets further fields: there are arrays of it.
typedef struct cadre_message {
  const char* role;  // "system", "user", "assistant", ...
  const char* content;
} cadre_message;

// Each queues a request and gives its number, above 0 and never used again. `adapter` NULL or "" is the base model;
// `sampling` NULL leaves everything to the model. A request that can never run is refused.

// Plain text to go on from; special tokens are added as the tokenizer says.
CADRE_API cadre_code cadre_engine_submit_text(cadre_engine* engine, const char* text, const char* adapter,
                                              const cadre_sampling* sampling, uint64_t* request);
// Messages in the model's chat template, or the adapter's where it has one.
CADRE_API cadre_code cadre_engine_submit_chat(cadre_engine* engine, const cadre_message* messages, size_t message_count,
                                              const char* adapter, const cadre_sampling* sampling, uint64_t* request);
CADRE_API cadre_code cadre_engine_submit_ids(cadre_engine* engine, const int32_t* ids, size_t id_count,
                                             const char* adapter, const cadre_sampling* sampling, uint64_t* request);

typedef enum cadre_finish {
  CADRE_FINISH_NONE = 0,       // more is to come
  CADRE_FINISH_STOP = 1,       // an end token or a stop string
  CADRE_FINISH_LENGTH = 2,     // max_tokens, or the context is full
  CADRE_FINISH_CANCELLED = 3,  // cadre_engine_cancel
  CADRE_FINISH_ERROR = 4,      // see error and error_message
} cadre_finish;

typedef struct cadre_token_chance {
  int32_t id;
  float logprob;
} cadre_token_chance;

// What a step brought for one request.
typedef struct cadre_event {
  uint64_t request;
  int32_t token;        // -1: none; the end token that stops a sequence is among them
  cadre_finish finish;  // not CADRE_FINISH_NONE on the request's last event
  const char* text;     // text that is now certain, whole characters only; never NULL, ends with a NUL byte
  size_t text_size;     // bytes of text, without that NUL byte
  const cadre_token_chance* logprobs;  // [logprob_count] of the token, then of the most likely, where asked for
  size_t logprob_count;
  cadre_code error;  // CADRE_OK unless finish is CADRE_FINISH_ERROR
  const char* error_message;
} cadre_event;

// One batch through the model. (*events)[0] to (*events)[*count - 1] are lent until the next step of this engine or its
// close. None where nothing is queued or running, and where a long prompt takes several steps.
CADRE_API cadre_code cadre_engine_step(cadre_engine* engine, const cadre_event* const** events, size_t* count);
// The request gets no further token; its last event comes with the next step. CADRE_NOT_FOUND where none has this
// number or it has ended.
CADRE_API cadre_code cadre_engine_cancel(cadre_engine* engine, uint64_t request);
// 1 where nothing is queued or running, also for NULL.
CADRE_API int cadre_engine_idle(const cadre_engine* engine);

// ---- text and ids -----------------------------------------------------------------------------------------------

CADRE_API cadre_code cadre_engine_encode(const cadre_engine* engine, const char* text, int add_special_tokens,
                                         int32_t** ids, size_t* count);
// `size`, where not NULL, gets the bytes of *text without the NUL byte that ends it.
CADRE_API cadre_code cadre_engine_decode(const cadre_engine* engine, const int32_t* ids, size_t count,
                                         int skip_special_tokens, char** text, size_t* size);

// ---- the gate ---------------------------------------------------------------------------------------------------

// Where and how a layer would run; 0 everywhere: on this machine, without adapters.
typedef struct cadre_deployment {
  size_t struct_size;
  int32_t threads;           // compute threads; 0: all of this machine
  int32_t max_adapters;      // adapters on the experts of this layer at the same time
  int32_t max_adapter_rank;  // their largest rank
  int32_t tensor_parallel;   // ranks one expert is split over; 0: 1
  int32_t expert_parallel;   // ranks the experts are spread over; 0: 1
  int32_t max_tokens;        // rows of the largest call; 0: 512
  int32_t batch_invariant;   // flag: a row's bits must not depend on other rows
  int64_t workspace_limit;   // bytes; 0: no limit
} cadre_deployment;

// The gate's answer for one MoE layer, as `cadre explain --json` shows it: an object with policy, chosen, candidates
// (each with every reason it was refused for, or its predicted times) and warnings. `deployment` and `policy` may be
// NULL. *json is also given with CADRE_NO_BACKEND, with `chosen` null, and is NULL on every other failure.
CADRE_API cadre_code cadre_select_json(const char* spec_json, const cadre_deployment* deployment, const char* policy,
                                       char** json);

// Where an adapter binds in a model, of which only the headers are read, as a JSON object; `usable` in it is the
// verdict. An adapter that was read and refused is still CADRE_OK; a folder that is not there and a model that cannot
// be read are not.
CADRE_API cadre_code cadre_check_adapter_json(const char* model_dir, const char* adapter_dir, const char* options,
                                              char** json);

#ifdef __cplusplus
}  // extern "C"
#endif
