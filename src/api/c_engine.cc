#include "api/c_engine.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "api/c_sampling.h"

namespace cadre::api {
namespace {

static_assert(CADRE_FINISH_NONE == static_cast<int>(FinishReason::kNone));
static_assert(CADRE_FINISH_STOP == static_cast<int>(FinishReason::kStop));
static_assert(CADRE_FINISH_LENGTH == static_cast<int>(FinishReason::kLength));
static_assert(CADRE_FINISH_CANCELLED == static_cast<int>(FinishReason::kCancelled));
static_assert(CADRE_FINISH_ERROR == static_cast<int>(FinishReason::kError));

// `opening` ends with cadre_engine_open: an engine may prepare backends again when an adapter is loaded, and by then
// what progress_user points at may be gone.
Result<EngineOptions> read_options(const cadre_engine_options* given, const std::shared_ptr<bool>& opening) {
  CADRE_ASSIGN(const cadre_engine_options o, read_struct(given, "engine_options"));
  if (o.model_dir == nullptr) return missing("engine_options.model_dir");
  EngineOptions out;
  out.model_dir = o.model_dir;
  out.hf_overrides = text_or_empty(o.hf_overrides);
  if (o.backend != nullptr) {
    CADRE_ASSIGN(out.backend, parse_policy(o.backend, "api"));
  }
  constexpr Rehearse kRehearse[] = {Rehearse::kQuick, Rehearse::kFull, Rehearse::kOff};
  if (o.rehearse < CADRE_REHEARSE_QUICK || o.rehearse > CADRE_REHEARSE_OFF) {
    return error(Code::kInvalidArgument, "engine_options.rehearse is ", o.rehearse, ", want 0 to ", CADRE_REHEARSE_OFF);
  }
  out.rehearse = kRehearse[o.rehearse];
  const auto take = [](auto value, auto& field) {
    if (value != 0) field = value;
  };
  take(o.threads, out.threads);
  take(o.max_loras, out.max_loras);
  take(o.max_cpu_loras, out.max_cpu_loras);
  take(o.max_lora_rank, out.max_lora_rank);
  out.loras_on_experts = o.loras_on_experts != 0;
  take(o.max_model_len, out.max_model_len);
  take(o.max_num_seqs, out.max_num_seqs);
  take(o.max_num_batched_tokens, out.max_num_batched_tokens);
  take(o.kv_cache_memory, out.kv_cache_memory);
  take(o.memory_limit, out.memory_limit);
  out.check_weights = o.check_weights != 0;
  out.batch_invariant = o.batch_invariant != 0;
  out.enable_prefix_caching = o.no_prefix_caching == 0;
  out.need_tokenizer = o.no_tokenizer == 0;
  if (o.progress != nullptr) {
    out.progress = [call = o.progress, user = o.progress_user, opening](double share) {
      if (*opening) call(share, user);
    };
  }
  return out;
}

Status submit(cadre_engine* engine, Request request, const char* adapter, const cadre_sampling* sampling,
              std::uint64_t* id) {
  if (engine == nullptr) return missing("engine");
  if (id == nullptr) return missing("request");
  request.adapter = text_or_empty(adapter);
  CADRE_ASSIGN(request.sampling, read_sampling(sampling));
  CADRE_ASSIGN(*id, engine->engine->submit(std::move(request)));
  return {};
}

// Points at what `brought` holds.
cadre_event to_c(const Event& e, const std::vector<cadre_token_chance>& logprobs) {
  cadre_event out = {};
  out.request = e.request;
  out.token = e.token.value_or(-1);
  out.finish = static_cast<cadre_finish>(e.finish);
  out.text = e.text.c_str();
  out.text_size = e.text.size();
  out.logprobs = logprobs.empty() ? nullptr : logprobs.data();
  out.logprob_count = logprobs.size();
  out.error = static_cast<cadre_code>(e.error.code());
  out.error_message = e.error.message().c_str();
  return out;
}

void lend(cadre_engine& handle, std::vector<Event> events) {
  handle.pointers.clear();
  handle.events.clear();
  handle.logprobs.clear();
  handle.brought = std::move(events);
  for (const Event& e : handle.brought) {
    auto& chances = handle.logprobs.emplace_back();
    for (const TokenChance& chance : e.logprobs) chances.push_back({.id = chance.id, .logprob = chance.logprob});
  }
  for (std::size_t i = 0; i < handle.brought.size(); ++i) {
    handle.events.push_back(to_c(handle.brought[i], handle.logprobs[i]));
  }
  for (const cadre_event& e : handle.events) handle.pointers.push_back(&e);
}

}  // namespace
}  // namespace cadre::api

using cadre::Code;
using cadre::Request;
using cadre::Status;
using cadre::api::guarded;
using cadre::api::missing;

extern "C" {

cadre_code cadre_engine_open(const cadre_engine_options* options, cadre_engine** engine) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    *engine = nullptr;
    const auto opening = std::make_shared<bool>(true);
    CADRE_ASSIGN(cadre::EngineOptions read, cadre::api::read_options(options, opening));
    auto handle = std::make_unique<cadre_engine>();
    CADRE_ASSIGN(handle->engine, cadre::Engine::open(std::move(read)));
    *opening = false;
    *engine = handle.release();
    return {};
  });
}

void cadre_engine_close(cadre_engine* engine) { delete engine; }

cadre_code cadre_engine_load_adapter(cadre_engine* engine, const char* name, const char* dir, const char* options) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (name == nullptr) return missing("name");
    if (dir == nullptr) return missing("dir");
    return engine->engine
        ->load_adapter({.name = name, .dir = dir, .options = std::string(cadre::api::text_or_empty(options))})
        .status();
  });
}

cadre_code cadre_engine_unload_adapter(cadre_engine* engine, const char* name) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (name == nullptr) return missing("name");
    return engine->engine->unload_adapter(name);
  });
}

cadre_code cadre_engine_submit_text(cadre_engine* engine, const char* text, const char* adapter,
                                    const cadre_sampling* sampling, uint64_t* request) {
  return guarded([&]() -> Status {
    if (text == nullptr) return missing("text");
    Request r;
    r.prompt = text;
    return cadre::api::submit(engine, std::move(r), adapter, sampling, request);
  });
}

cadre_code cadre_engine_submit_chat(cadre_engine* engine, const cadre_message* messages, size_t message_count,
                                    const char* adapter, const cadre_sampling* sampling, uint64_t* request) {
  return guarded([&]() -> Status {
    if (messages == nullptr && message_count > 0) return missing("messages");
    Request r;
    for (size_t i = 0; i < message_count; ++i) {
      const std::string which = "messages[" + std::to_string(i) + "]";
      if (messages[i].role == nullptr) return missing(which + ".role");
      if (messages[i].content == nullptr) return missing(which + ".content");
      r.chat.push_back({.role = messages[i].role, .content = messages[i].content});
    }
    return cadre::api::submit(engine, std::move(r), adapter, sampling, request);
  });
}

cadre_code cadre_engine_submit_ids(cadre_engine* engine, const int32_t* ids, size_t id_count, const char* adapter,
                                   const cadre_sampling* sampling, uint64_t* request) {
  return guarded([&]() -> Status {
    if (ids == nullptr && id_count > 0) return missing("ids");
    Request r;
    r.prompt_ids.emplace(ids, ids + id_count);
    return cadre::api::submit(engine, std::move(r), adapter, sampling, request);
  });
}

cadre_code cadre_engine_step(cadre_engine* engine, const cadre_event* const** events, size_t* count) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (events == nullptr) return missing("events");
    if (count == nullptr) return missing("count");
    CADRE_ASSIGN(std::vector<cadre::Event> brought, engine->engine->step());
    cadre::api::lend(*engine, std::move(brought));
    *events = engine->pointers.data();
    *count = engine->pointers.size();
    return {};
  });
}

cadre_code cadre_engine_cancel(cadre_engine* engine, uint64_t request) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (engine->engine->cancel(request)) return {};
    return cadre::error(Code::kNotFound, "no request ", request, " is queued or running");
  });
}

int cadre_engine_idle(const cadre_engine* engine) { return engine == nullptr || engine->engine->idle() ? 1 : 0; }

cadre_code cadre_engine_encode(const cadre_engine* engine, const char* text, int add_special_tokens, int32_t** ids,
                               size_t* count) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (text == nullptr) return missing("text");
    if (ids == nullptr) return missing("ids");
    if (count == nullptr) return missing("count");
    CADRE_ASSIGN(const std::vector<std::int32_t> encoded, engine->engine->encode(text, add_special_tokens != 0));
    const std::size_t bytes = encoded.size() * sizeof(int32_t);
    auto* copy = static_cast<int32_t*>(std::malloc(bytes == 0 ? 1 : bytes));  // never NULL on success
    if (copy == nullptr) return cadre::error(Code::kOutOfMemory, "no memory for ", encoded.size(), " ids");
    std::copy(encoded.begin(), encoded.end(), copy);
    *ids = copy;
    *count = encoded.size();
    return {};
  });
}

cadre_code cadre_engine_decode(const cadre_engine* engine, const int32_t* ids, size_t count, int skip_special_tokens,
                               char** text, size_t* size) {
  return guarded([&]() -> Status {
    if (engine == nullptr) return missing("engine");
    if (ids == nullptr && count > 0) return missing("ids");
    if (text == nullptr) return missing("text");
    CADRE_ASSIGN(const std::string decoded,
                 engine->engine->decode(std::vector<std::int32_t>(ids, ids + count), skip_special_tokens != 0));
    CADRE_ASSIGN(*text, cadre::api::copy_text(decoded));
    if (size != nullptr) *size = decoded.size();
    return {};
  });
}

}  // extern "C"
