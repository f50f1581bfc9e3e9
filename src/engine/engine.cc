#include <cadre/engine.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>

#include "base/result.h"
#include "engine/memory_plan.h"
#include "engine/plan.h"
#include "engine/sampling/generation_config.h"
#include "engine/scheduler.h"
#include "model/tensor_plan.h"
#include "model/text_part.h"

namespace cadre {

namespace {

// Runs `call`; what the standard library throws (no memory, for the most part) becomes a Status at this edge.
template <class F>
auto guarded(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "no memory is left for this call");
  } catch (const std::exception& e) {
    return error(Code::kInternal, "unexpected failure: ", e.what());
  }
}

// The tensors that will be in memory, before any is.
Result<std::shared_ptr<Checkpoint>> foreseen_weights(const EngineOptions& options, const ModelConfig& config) {
  if (!options.dummy_weights) return open_model_weights(options.model_dir, config);
  CADRE_ASSIGN(TensorPlan plan, plan_tensors(config, options.model_dir));
  return std::move(plan.checkpoint);
}

}  // namespace

struct Engine::Impl {
  EngineOptions options;
  Prompts prompts;
  GenerationDefaults defaults;
  std::vector<std::int32_t> eos_ids;  // of config.json and generation_config.json
  MemoryPlan memory;
  std::shared_ptr<ThreadPool> threads;
  std::unique_ptr<AdapterSet> adapters;
  std::unique_ptr<Runner> runner;
  std::vector<std::string> notes;
  std::vector<LayerReport> reports;
  mutable std::mutex names_mutex;
  std::string names;  // of the backends in the reports

  std::unique_ptr<AdapterLoader> loader;
  std::unique_ptr<Scheduler> scheduler;
  bool stalled = false;
  std::size_t max_prompt_bytes = 0;
  std::uint64_t next_id = 1;

  Status open(EngineOptions o);
  Status read_generation_defaults();
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request, const AdapterRef& adapter) const;
  Result<AdapterRef> adapter_of(const Request& request) const;
  Result<std::uint64_t> submit(const Request& request);
  Result<std::vector<Event>> step();
  Result<std::vector<float>> logits(const std::vector<std::int32_t>& ids, const AdapterRef& adapter,
                                    std::int64_t chunk);
  const std::vector<LayerReport>& refresh_reports();
};

Status Engine::Impl::read_generation_defaults() {
  const std::string path = options.model_dir + "/generation_config.json";
  std::error_code no_error;  // a link that cannot be followed is refused by the read below
  if (std::filesystem::symlink_status(path, no_error).type() != std::filesystem::file_type::not_found) {
    CADRE_ASSIGN(const Json json, Json::parse_file(path));
    CADRE_ASSIGN(defaults, read_generation_config(json));
  }
  eos_ids = runner->model().config().eos_ids;
  for (const std::int32_t id : defaults.eos_token_ids) {
    if (std::find(eos_ids.begin(), eos_ids.end(), id) == eos_ids.end()) eos_ids.push_back(id);
  }
  defaults.eos_token_ids = eos_ids;
  return {};
}

Status Engine::Impl::open(EngineOptions o) {
  options = std::move(o);
  const auto within = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return error(Code::kInvalidArgument, name, " is ", value, ", want ", least, " to ", most);
  };
  CADRE_TRY(within("threads", options.threads, 1, 1024));
  CADRE_TRY(within("max_num_seqs", options.max_num_seqs, 1, 4096));
  CADRE_TRY(within("max_num_batched_tokens", options.max_num_batched_tokens, 1, 1 << 20));
  CADRE_TRY(within("max_model_len", options.max_model_len, 0, std::int64_t{1} << 31));
  CADRE_TRY(within("max_loras", options.max_loras, 0, 4096));
  CADRE_TRY(within("max_cpu_loras", options.max_cpu_loras, 0, 1 << 20));
  CADRE_TRY(within("max_lora_rank", options.max_lora_rank, 0, 65536));
  CADRE_TRY(within("kv_cache_memory", options.kv_cache_memory, 0, std::int64_t{1} << 50));
  options.max_num_batched_tokens = std::max<std::int64_t>(options.max_num_batched_tokens, options.max_num_seqs);
  const std::int64_t limit = options.memory_limit > 0 ? options.memory_limit : available_memory();
  {
    // A folder that is no model says so.
    CADRE_ASSIGN(const ModelConfig config, read_model_config(options.model_dir, options.hf_overrides));
    CADRE_ASSIGN(const auto checkpoint, foreseen_weights(options, config));
    memory.weights = weight_memory(*checkpoint, config.quantisation);
    CADRE_TRY(check_memory(memory, limit));
  }
  CADRE_ASSIGN(prompts, Prompts::open(options.model_dir, options.need_tokenizer));

  ModelOptions model_options;
  model_options.dir = options.model_dir;
  model_options.hf_overrides = options.hf_overrides;
  model_options.device = make_cpu_device();
  model_options.caps = this_device();
  model_options.caps.cores = options.threads;
  model_options.check_weights = options.check_weights;
  model_options.progress = options.progress;
  CADRE_ASSIGN(threads, ThreadPool::start(options.threads));
  if (options.dummy_weights) model_options.weights = WeightOrigin::kDummy;
  model_options.seed = options.dummy_seed;
  model_options.threads = threads.get();
  CADRE_ASSIGN(std::unique_ptr<Model> model, Model::load(std::move(model_options)));

  SelectOptions select;
  select.policy = options.backend;
  select.base.max_tokens = static_cast<int>(options.max_num_batched_tokens);
  select.base.need_batch_invariance = options.batch_invariant;
  select.rehearse = static_cast<RehearseMode>(options.rehearse);
  select.threads = threads.get();
  if (limit > 0) select.memory_left = limit - memory.weights;
  adapters = std::make_unique<AdapterSet>(options, make_moe_gate(options.backends), select);
  CADRE_TRY(adapters->prepare(*model, options.adapters));

  const MemoryPlan before = memory;
  CADRE_ASSIGN(memory, plan_cache(options, model->state_specs(), model->config().max_context));
  memory.weights = before.weights + model->packed_bytes();
  memory.adapters = adapters->bytes();
  RunnerLimits limits;
  limits.max_tokens = options.max_num_batched_tokens;
  limits.max_sequences = options.max_num_seqs;
  // One for each sequence, and some for a prompt whose own logits are wanted.
  limits.max_logit_rows = std::min<std::int64_t>(limits.max_tokens, options.max_num_seqs + 32);
  limits.pages = memory.pages;
  limits.snapshots = memory.snapshots;
  limits.threads = options.threads;
  limits.pool = threads;
  memory.workspace = Runner::workspace_bytes(*model, limits) +
                     limits.max_logit_rows * model->config().vocab * static_cast<std::int64_t>(2 * sizeof(float));
  CADRE_TRY(check_memory(memory, limit));
  if (!memory.note.empty()) notes.push_back(memory.note);
  for (const std::string& note : model->notes()) notes.push_back(note);
  CADRE_ASSIGN(runner, Runner::make(std::move(model), limits, nullptr));
  CADRE_TRY(adapters->attach(*runner));
  SchedulerOptions scheduling;
  scheduling.max_sequences = options.max_num_seqs;
  scheduling.max_tokens = options.max_num_batched_tokens;
  scheduling.max_logit_rows = limits.max_logit_rows;
  scheduling.prefix_caching = memory.prefix_caching;
  loader = std::make_unique<AdapterLoader>(
      [this](const AdapterSource& source) { return adapters->read(runner->model(), source); });
  scheduler = std::make_unique<Scheduler>(scheduling, *runner, *adapters, *loader);
  CADRE_TRY(read_generation_defaults());
  if (prompts.tokenizer() != nullptr) {
    // Normalising can shorten a text to a third (NFKC's worst); what is stripped is little.
    max_prompt_bytes =
        3 * (prompts.tokenizer()->longest_token() * static_cast<std::size_t>(memory.max_model_len) + 4096);
  }
  for (std::string& note : adapters->notes()) notes.push_back(std::move(note));
  refresh_reports();
  if (options.progress) options.progress(1.0);
  options.progress = nullptr;  // what it refers to may not outlive this call
  runner->model().stop_progress();
  return {};
}

const std::vector<LayerReport>& Engine::Impl::refresh_reports() {
  reports.clear();
  for (const LayerSelection& s : runner->model().selections()) reports.push_back(to_report(s));
  for (const LayerReport& report : reports) {
    for (const std::string& warning : report.selection.warnings) {
      if (std::find(notes.begin(), notes.end(), warning) == notes.end()) notes.push_back(warning);
    }
  }
  std::vector<std::string> chosen;
  std::string joined;
  for (const LayerReport& report : reports) {
    if (std::find(chosen.begin(), chosen.end(), report.selection.chosen) != chosen.end()) continue;
    chosen.push_back(report.selection.chosen);
    joined += (joined.empty() ? "" : ", ") + chosen.back();
  }
  const std::lock_guard lock(names_mutex);
  names = std::move(joined);
  return reports;
}

Result<std::vector<std::int32_t>> Engine::Impl::prompt_ids(const Request& request, const AdapterRef& adapter) const {
  if (request.prompt_ids.has_value() + request.prompt.has_value() + !request.chat.empty() != 1) {
    return error(Code::kInvalidArgument, "want exactly one of prompt_ids, prompt and chat");
  }
  if (request.prompt_ids) return *request.prompt_ids;
  CADRE_ASSIGN(const Tokenizer* tokenizer, prompts.require_tokenizer());
  if (request.prompt) return tokenizer->encode(*request.prompt, true);
  CADRE_ASSIGN(const std::string text,
               prompts.chat_text(Prompts::to_input(request.chat), adapter == nullptr ? nullptr : &adapter->templates));
  return tokenizer->encode(text, false);
}

Result<AdapterRef> Engine::Impl::adapter_of(const Request& request) const {
  if (request.version != nullptr) return request.version;
  return adapters->find(request.adapter);
}

Result<std::uint64_t> Engine::Impl::submit(const Request& request) {
  CADRE_ASSIGN(const AdapterRef adapter, adapter_of(request));
  CADRE_ASSIGN(std::vector<std::int32_t> ids, prompt_ids(request, adapter));
  const std::int64_t vocab = runner->model().config().vocab, length = static_cast<std::int64_t>(ids.size());
  if (ids.empty()) return error(Code::kInvalidArgument, "the prompt is empty, want at least one token");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return error(Code::kInvalidArgument, "prompt id ", ids[i], " at position ", i, ", want 0 to ", vocab - 1,
                   ", the model's vocabulary");
    }
  }
  if (length >= memory.max_model_len) {
    return error(Code::kLimitExceeded, "the prompt has ", length, " tokens, and the context holds ",
                 memory.max_model_len, " with the answer; shorten the prompt or raise --max-model-len");
  }
  SamplingParams params = resolve(request.sampling, defaults);
  CADRE_TRY(validate(params, static_cast<std::int32_t>(vocab)));
  if (request.prompt_logprobs && (*request.prompt_logprobs < 0 || *request.prompt_logprobs > kMaxLogprobs)) {
    return error(Code::kInvalidArgument, "prompt_logprobs is ", *request.prompt_logprobs, ", want 0 to ", kMaxLogprobs);
  }
  if (!std::isfinite(request.timeout_s) || request.timeout_s < 0) {
    return error(Code::kInvalidArgument, "timeout_s is ", request.timeout_s, ", want 0 or more");
  }
  if (params.temperature > 0 && !params.seed) params.seed = fresh_seed();
  if (!params.stop.empty()) CADRE_TRY(prompts.require_tokenizer().status());
  const std::int64_t most = memory.max_model_len - length;
  Sequence::Ask ask;
  ask.capacity = length + std::min<std::int64_t>(params.max_tokens.value_or(static_cast<std::int32_t>(most)), most);
  ask.id = next_id++;
  ask.prompt = std::move(ids);
  ask.params = std::move(params);
  ask.adapter = adapter;
  ask.choice = request.choice;
  ask.prompt_logprobs = request.prompt_logprobs;
  ask.priority = request.priority;
  ask.tenant = request.tenant;
  ask.cache_salt = request.cache_salt;
  ask.timeout_s = request.timeout_s;
  const std::uint64_t id = ask.id;
  scheduler->add(std::make_unique<Sequence>(std::move(ask), prompts.tokenizer()));
  return id;
}

Result<std::vector<Event>> Engine::Impl::step() {
  std::vector<Event> events;
  const auto finish = [&](std::vector<Scheduler::Failure> failures) {
    for (Scheduler::Failure& failure : failures) {
      const bool asked = failure.why.ok() || failure.why.code() == Code::kCancelled;
      events.push_back(
          failure.sequence->finish(asked ? FinishReason::kCancelled : FinishReason::kError, std::move(failure.why)));
      scheduler->finish(failure.sequence);
    }
  };
  finish(scheduler->ended());
  const std::vector<Scheduler::Part> parts = scheduler->plan();
  finish(scheduler->broken());  // they hold no rows
  stalled = parts.empty() && events.empty() && !scheduler->idle();
  // Whoever calls again and again should not do so for nothing while an adapter is read, nor wait long for other calls.
  if (stalled && loader->wait(std::chrono::milliseconds(2))) stalled = false;
  if (!parts.empty()) {
    std::vector<RunItem> items;
    std::vector<std::int64_t> starts;
    for (const Scheduler::Part& part : parts) {
      Sequence& s = *part.sequence;
      starts.push_back(s.state.length);
      items.push_back({.state = &s.state,
                       .ids = s.unseen().subspan(0, static_cast<std::size_t>(part.rows)),
                       .slot = s.slot(),
                       .rope_length = std::max(s.prompt_tokens(), s.state.length + part.rows),
                       .all_logits = part.all_logits,
                       .no_logits = part.logit_rows() == 0});
    }
    const std::span<float> logits = runner->run(items);
    scheduler->ran(parts);
    const std::int64_t vocab = runner->model().config().vocab;
    std::int64_t row = 0;
    std::vector<Sequence*> done;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t rows = parts[i].logit_rows();
      const auto of = [&](std::int64_t first, std::int64_t n) {
        return logits.subspan(static_cast<std::size_t>(first * vocab), static_cast<std::size_t>(n * vocab));
      };
      if (parts[i].all_logits) parts[i].sequence->see_prompt(starts[i] + 1, of(row, rows), vocab);
      row += rows;
      if (!parts[i].draws) continue;
      events.push_back(parts[i].sequence->advance(of(row - 1, 1)));
      if (events.back().finish != FinishReason::kNone) done.push_back(parts[i].sequence);
    }
    for (Sequence* sequence : done) scheduler->finish(sequence);
  }
  if (std::any_of(events.begin(), events.end(), [](const Event& e) { return e.finish != FinishReason::kNone; })) {
    scheduler->collect_adapters();
  }
  return events;
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(EngineOptions options) {
  return guarded([&]() -> Result<std::unique_ptr<Engine>> {
    auto impl = std::make_unique<Impl>();
    CADRE_TRY(impl->open(std::move(options)));
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
  });
}

Result<AdapterInfo> Engine::load_adapter(const AdapterSource& source) {
  CADRE_ASSIGN(std::shared_ptr<ReadAdapter> read, read_adapter(source));
  return load_adapter(std::move(read));
}

Result<std::shared_ptr<ReadAdapter>> Engine::read_adapter(const AdapterSource& source,
                                                          const std::string& read_from) const {
  return guarded([&] { return impl_->adapters->read(impl_->runner->model(), source, read_from); });
}

Result<AdapterInfo> Engine::load_adapter(std::shared_ptr<ReadAdapter> adapter) {
  impl_->scheduler->collect_adapters();  // slots of versions that nobody uses any more
  Result<AdapterInfo> info = guarded([&] { return impl_->adapters->load(*impl_->runner, std::move(adapter)); });
  impl_->scheduler->collect_adapters();
  impl_->refresh_reports();
  return info;
}

Status Engine::unload_adapter(std::string_view name) {
  if (name.empty()) return error(Code::kInvalidArgument, "the base model cannot be unloaded, want an adapter's name");
  CADRE_TRY(impl_->adapters->unload(name));
  impl_->scheduler->collect_adapters();
  return {};
}

std::vector<AdapterInfo> Engine::adapters() const { return impl_->adapters->list(); }
Result<AdapterRef> Engine::find_adapter(std::string_view name) const { return impl_->adapters->find(name); }
Result<std::uint64_t> Engine::submit(Request request) {
  return guarded([&] { return impl_->submit(request); });
}
Result<std::vector<Event>> Engine::step() {
  return guarded([&] { return impl_->step(); });
}
AdapterInfo Engine::adapter_info(const AdapterRef& adapter) const { return impl_->adapters->info(*adapter); }
bool Engine::idle() const { return impl_->scheduler->idle(); }
bool Engine::stalled() const { return impl_->stalled; }
bool Engine::cancel(std::uint64_t request) { return impl_->scheduler->cancel(request); }

EngineStats Engine::stats() const {
  EngineStats stats;
  impl_->scheduler->add_to(&stats);
  stats.slots = impl_->adapters->slots();
  stats.slots_used = impl_->adapters->slots_used();
  for (const auto& [backend, time] : impl_->runner->model().moe_times()) {
    stats.backends.push_back({backend, time.seconds, time.calls});
  }
  return stats;
}

MemoryReport Engine::memory() const {
  const MemoryPlan& plan = impl_->memory;
  return {.weights = plan.weights,
          .adapters = impl_->adapters->bytes(),
          .cache = plan.cache,
          .workspace = plan.workspace,
          .cache_tokens = plan.pages * kPageSize};
}

Result<std::vector<float>> Engine::Impl::logits(const std::vector<std::int32_t>& ids, const AdapterRef& adapter,
                                                std::int64_t chunk) {
  const std::int64_t vocab = runner->model().config().vocab, length = static_cast<std::int64_t>(ids.size());
  if (ids.empty()) return error(Code::kInvalidArgument, "the sequence is empty, want at least one id");
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab) return error(Code::kInvalidArgument, "id ", id, ", want 0 to ", vocab - 1);
  }
  const RunnerLimits& limits = runner->limits();
  const std::int64_t most = std::min(limits.max_tokens, limits.max_logit_rows);
  const std::int64_t piece = chunk > 0 ? std::min(chunk, most) : most;
  SequenceState state;
  scheduler->make_room((length + kPageSize - 1) / kPageSize);
  if (!runner->pool().reserve(state, length)) {
    return error(Code::kLimitExceeded, "a sequence of ", length, " tokens does not fit in the cache, which has ",
                 runner->pool().free_pages() * kPageSize,
                 " tokens free; raise max_model_len or wait for running requests");
  }
  std::vector<float> out;
  for (std::int64_t at = 0; at < length; at += piece) {
    const std::size_t n = static_cast<std::size_t>(std::min(piece, length - at));
    const RunItem item{.state = &state,
                       .ids = std::span(ids).subspan(static_cast<std::size_t>(at), n),
                       .slot = adapter == nullptr ? -1 : adapter->info.slot,
                       .rope_length = length,
                       .all_logits = true};
    const std::span<float> rows = runner->run({&item, 1});
    out.insert(out.end(), rows.begin(), rows.end());
  }
  runner->pool().release(state);
  const auto bad = std::find_if(out.begin(), out.end(), [](float x) { return !std::isfinite(x); });
  if (bad != out.end()) {
    const std::int64_t at = bad - out.begin();
    return error(Code::kInvalidFile, "the logit of token ", at % vocab, " at position ", at / vocab, " is ", *bad,
                 ": the weights of the model or of the adapter are not finite; --check-weights names the tensor");
  }
  return out;
}

Result<std::vector<float>> Engine::logits(const std::vector<std::int32_t>& ids, std::string_view adapter,
                                          std::int64_t chunk) {
  CADRE_ASSIGN(const AdapterRef loaded, impl_->adapters->find(adapter));
  CADRE_ASSIGN(const bool in_slot, impl_->adapters->acquire(*impl_->runner, loaded));
  if (!in_slot) {
    return error(Code::kConflict, "adapter '", adapter, "' has no slot while running requests use all ",
                 impl_->adapters->slots(), "; raise max_loras or wait for them");
  }
  Result<std::vector<float>> out = impl_->logits(ids, loaded, chunk);
  impl_->adapters->release(loaded);
  return out;
}

Result<std::vector<std::int32_t>> Engine::encode(std::string_view text, bool add_special_tokens) const {
  CADRE_ASSIGN(const Tokenizer* tokenizer, impl_->prompts.require_tokenizer());
  return tokenizer->encode(text, add_special_tokens);
}

Result<std::string> Engine::decode(const std::vector<std::int32_t>& ids, bool skip_special_tokens) const {
  CADRE_ASSIGN(const Tokenizer* tokenizer, impl_->prompts.require_tokenizer());
  return tokenizer->decode(ids, skip_special_tokens);
}

Result<std::string> Engine::token_text(std::int32_t id) const {
  CADRE_ASSIGN(const Tokenizer* tokenizer, impl_->prompts.require_tokenizer());
  return tokenizer->token_bytes(id);
}

std::size_t Engine::max_prompt_bytes() const { return impl_->max_prompt_bytes; }

Result<std::string> Engine::chat_text(const std::vector<ChatMessage>& messages, std::string_view adapter) const {
  CADRE_ASSIGN(const AdapterRef loaded, impl_->adapters->find(adapter));
  return chat_text(Prompts::to_input(messages), loaded);
}

Result<std::string> Engine::chat_text(const ChatInput& chat, const AdapterRef& adapter) const {
  return guarded([&] { return impl_->prompts.chat_text(chat, adapter == nullptr ? nullptr : &adapter->templates); });
}

Result<std::vector<std::int32_t>> Engine::prompt_ids(const Request& request) const {
  return guarded([&]() -> Result<std::vector<std::int32_t>> {
    CADRE_ASSIGN(const AdapterRef adapter, impl_->adapter_of(request));
    return impl_->prompt_ids(request, adapter);
  });
}

const std::vector<LayerReport>& Engine::selection() const { return impl_->reports; }

std::string Engine::backend_names() const {
  const std::lock_guard lock(impl_->names_mutex);
  return impl_->names;
}

std::int64_t Engine::vocab_size() const { return impl_->runner->model().config().vocab; }
std::int64_t Engine::max_model_len() const { return impl_->memory.max_model_len; }
std::string Engine::model_type() const { return impl_->runner->model().config().model_type; }
std::vector<std::string> Engine::notes() const { return impl_->notes; }

}  // namespace cadre
