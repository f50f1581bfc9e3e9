#include "server/service/generate.h"

#include <algorithm>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/result.h"
#include "io/json.h"
#include "server/access/names.h"
#include "server/openai/reply.h"

namespace cadre::server {
namespace {

// OpenAI's code for a prompt that is too long, which clients look for to cut a conversation.
ApiError too_long(const Exchange& exchange, const std::string& message) {
  return api_error(400, message, "context_length_exceeded", exchange.route == kChatRoute ? "messages" : "prompt");
}

ApiError submit_error(const Exchange& exchange, const Status& why) {
  return why.code() == Code::kLimitExceeded ? too_long(exchange, why.message()) : to_api_error(exchange, why);
}

Event without_paths(Event event) {
  event.error = Status(event.error.code(), server::without_paths(event.error.message()));
  return event;
}

// One generating request from the moment its sequences are queued. The engine's thread feeds it; the network's thread
// says when the client goes away.
class Generation final : public EventSink, public std::enable_shared_from_this<Generation> {
 public:
  Generation(Context& context, Exchange exchange, std::unique_ptr<Reply> reply, Limiter::Ticket ticket,
             const AdapterRef& adapter, std::size_t choices)
      : context_(context),
        exchange_(std::move(exchange)),
        reply_(std::move(reply)),
        ticket_(std::move(ticket)),
        adapter_(adapter == nullptr ? "" : context.engine().adapter_info(adapter).name),
        last_token_(choices, 0) {}

  void start(std::vector<Request> group) {
    context_.loop->submit(std::move(group), shared_from_this());
    exchange_.reply->on_disconnect([self = shared_from_this()] { self->client_left(); });
  }

  void accepted(const std::vector<std::uint64_t>& ids) override {
    bool gone = false;
    {
      const std::lock_guard lock(mutex_);
      ids_ = ids;
      gone = gone_;
    }
    if (gone) {
      end(499);
      return context_.loop->cancel(ids);
    }
    if (reply_->stream()) {
      HttpHeaders headers = reply_headers(exchange_, "text/event-stream; charset=utf-8");
      headers.emplace_back("Cache-Control", "no-cache");
      headers.emplace_back("X-Accel-Buffering", "no");  // a proxy that waits for more makes a stream pointless
      exchange_.reply->start(200, headers);
    }
  }

  void refused(const Status& why) override {
    ticket_.take_back();
    refuse(context_, exchange_, submit_error(exchange_, why), "invalid");
    release();
  }

  bool event(std::size_t index, const Event& event) override {
    if (ended_) return false;
    count(index, event);
    const bool hide = event.finish == FinishReason::kError && !exchange_.caller.is_admin();
    const std::string piece = reply_->feed(index, hide ? without_paths(event) : event);
    if (!piece.empty() && !exchange_.reply->write(piece)) {
      end(499);
      return false;
    }
    if (!reply_->done()) return true;
    const std::optional<ApiError>& error = reply_->error();
    // Before the client knows that its place is free.
    ticket_.release();
    if (reply_->stream()) {
      const std::string last = reply_->finish();
      if (!last.empty()) exchange_.reply->write(last);
      exchange_.reply->end();
      end(error ? error->status : 200);
    } else if (error) {
      exchange_.reply->send(error->status, reply_headers(exchange_, "application/json"), error->body());
      end(error->status);
    } else {
      exchange_.reply->send(200, reply_headers(exchange_, "application/json"), reply_->body());
      end(200);
    }
    return false;
  }

 private:
  void count(std::size_t index, const Event& event) {
    const double now = steady_seconds();
    if (event.token) {
      ticket_.charge_generated(1);
      double& last = last_token_[index];
      if (last == 0) {
        if (first_token_ == 0) {
          first_token_ = now;
          queue_seconds_ = event.queue_seconds;
        }
        context_.metrics->first_token(now - exchange_.arrived);
      } else {
        context_.metrics->next_token(now - last);
      }
      last = now;
    }
    if (event.finish != FinishReason::kNone) finish_ = event.finish;
  }

  void client_left() {
    std::vector<std::uint64_t> ids;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      ids = ids_;
    }
    if (ids.empty()) return;  // accepted() will see it
    // On the engine's thread, where the events come from too.
    context_.loop->cancel(ids);
    context_.loop->later([self = shared_from_this()] { self->end(499); });
  }

  // 499: the client left, as nginx logs it.
  void end(int status) {
    if (std::exchange(ended_, true)) return;
    const double now = steady_seconds();
    FinishedRequest finished;
    finished.reason = status == 499 ? FinishReason::kCancelled : finish_;
    finished.adapter = adapter_;
    finished.tenant = exchange_.caller.tenant();
    finished.seconds = now - exchange_.arrived;
    finished.queue_seconds = queue_seconds_;
    finished.prompt_tokens = reply_->prompt_tokens();
    finished.generated_tokens = reply_->completion_tokens();
    context_.metrics->finished(finished);
    std::vector<LogField> fields = {{"model", adapter_.empty() ? context_.base_name() : adapter_},
                                    {"prompt_tokens", reply_->prompt_tokens()},
                                    {"cached_tokens", reply_->cached_tokens()},
                                    {"tokens", reply_->completion_tokens()},
                                    {"finish", to_string(finished.reason)}};
    if (first_token_ > 0) fields.emplace_back("ttft_ms", (first_token_ - exchange_.arrived) * 1e3);
    if (reply_->error()) fields.emplace_back("error", reply_->error()->message);
    log_request(context_, exchange_, status, fields);
    release();
  }

  void release() {
    ended_ = true;
    ticket_.release();
  }

  Context& context_;
  Exchange exchange_;
  std::unique_ptr<Reply> reply_;
  Limiter::Ticket ticket_;
  std::string adapter_;
  bool ended_ = false;
  FinishReason finish_ = FinishReason::kNone;
  double first_token_ = 0, queue_seconds_ = 0;
  std::vector<double> last_token_;  // by choice
  std::mutex mutex_;                // the two below
  std::vector<std::uint64_t> ids_;
  bool gone_ = false;
};

// A text or a prompt that cannot fit is refused before anything is made of it, for each choice once more.
Status check_text(const Context& context, std::string_view text) {
  const std::size_t most = context.engine().max_prompt_bytes();
  if (most == 0 || text.size() <= most) return {};
  return error(Code::kLimitExceeded, "the prompt has ", text.size(), " bytes, which are more than the ",
               context.engine().max_model_len(), " tokens that the context holds");
}

Status check_ids(const Context& context, const std::vector<std::int32_t>& ids) {
  const std::int64_t length = static_cast<std::int64_t>(ids.size()), most = context.engine().max_model_len();
  if (length < most) return {};
  return error(Code::kLimitExceeded, "the prompt has ", length, " tokens, and the context holds ", most,
               " with the answer; shorten the prompt");
}

// The parts of a request that both routes turn into the same.
struct Plan {
  AdapterRef adapter;
  std::vector<PromptTokens> prompts;
};

ReplyInfo reply_info(const Context& context, const GenerationRequest& request, std::string_view prefix,
                     const AdapterRef& adapter) {
  ReplyInfo info;
  info.id = new_reply_id(prefix);
  info.created = static_cast<std::int64_t>(std::time(nullptr));
  info.model = request.model.empty() ? context.base_name() : request.model;
  // What decides an answer besides the request: the program, the kernels, the weights.
  info.fingerprint = "cadre-" + context.version + "-" + context.engine().backend_names();
  if (adapter != nullptr) info.fingerprint += "-" + context.engine().adapter_info(adapter).digest.substr(0, 12);
  return info;
}

TokenText token_text(const Context& context) {
  return [&context](std::int32_t id) {
    Result<std::string> text = context.engine().token_text(id);
    return text.ok() ? *std::move(text) : std::string();
  };
}

std::vector<Request> make_group(const Context& context, const Exchange& exchange, const GenerationRequest& request,
                                const Plan& plan, std::optional<std::int32_t> prompt_logprobs) {
  std::vector<Request> group;
  for (const PromptTokens& prompt : plan.prompts) {
    for (std::int32_t choice = 0; choice < request.n; ++choice) {
      Request one;
      one.prompt_ids = prompt.ids;
      one.version = plan.adapter;
      one.sampling = request.sampling;
      one.choice = static_cast<std::uint32_t>(choice);
      one.prompt_logprobs = prompt_logprobs;
      one.priority = priority_of(exchange.caller, request.priority);
      one.tenant = exchange.caller.tenant();
      // Lengths in front, so that no pair of values reads as another pair.
      const std::string tenant = context.options.share_prefix_cache ? "" : exchange.caller.tenant();
      one.cache_salt = std::to_string(tenant.size()) + ":" + tenant + request.cache_salt;
      if (context.options.request_timeout_s > 0) {
        // What is left of it; a moment, where it is over already.
        one.timeout_s = std::max(1e-6, exchange.arrived + context.options.request_timeout_s - steady_seconds());
      }
      group.push_back(std::move(one));
    }
  }
  return group;
}

// Everything after the request was parsed; `prepare` computes the prompts, `make_reply` the reply.
template <class Asked, class Prepare, class MakeReply>
void generate(Context& context, Exchange exchange, const Asked& request, std::size_t prompts,
              std::optional<std::int32_t> prompt_logprobs, const Prepare& prepare, const MakeReply& make_reply) {
  Plan plan;
  {
    ApiResult<AdapterRef> adapter = find_model(context, exchange.caller, request.model);
    if (!adapter.ok()) return refuse(context, exchange, adapter.error(), "not_found");
    plan.adapter = *std::move(adapter);
  }
  const std::size_t choices = prompts * static_cast<std::size_t>(request.n);
  auto admitted = context.limiter->admit(exchange.caller, static_cast<int>(choices));
  if (const Refusal* refusal = std::get_if<Refusal>(&admitted)) return refuse(context, exchange, *refusal);
  Limiter::Ticket ticket = std::move(std::get<Limiter::Ticket>(admitted));

  if (const Status status = prepare(&plan); !status.ok()) {
    ticket.take_back();
    return refuse(context, exchange, submit_error(exchange, status), "invalid");
  }
  std::int64_t tokens = 0;
  for (const PromptTokens& prompt : plan.prompts) tokens += static_cast<std::int64_t>(prompt.ids.size());
  if (const auto refusal = ticket.charge_prompt(tokens)) return refuse(context, exchange, *refusal);
  std::vector<Request> group = make_group(context, exchange, request, plan, prompt_logprobs);
  std::unique_ptr<Reply> reply = make_reply(plan);
  const auto generation = std::make_shared<Generation>(context, std::move(exchange), std::move(reply),
                                                       std::move(ticket), plan.adapter, choices);
  generation->start(std::move(group));
}

}  // namespace

std::string merge_kwargs(const std::string& defaults, const std::string& own) {
  if (defaults.empty() || own.empty()) return own.empty() ? defaults : own;
  const Result<Json> first = Json::parse(defaults, "kwargs"), second = Json::parse(own, "kwargs");
  if (!first.ok() || !second.ok()) return own;  // the template's reader says what is wrong
  std::vector<Json::Member> members(first->members().begin(), first->members().end());
  members.insert(members.end(), second->members().begin(), second->members().end());
  return Json::object(std::move(members)).dump();
}

void chat_completions(Context& context, Exchange exchange) {
  ApiResult<ChatRequest> parsed = parse_chat_request(exchange.request.body, context.request_limits);
  if (!parsed.ok()) return refuse(context, exchange, parsed.error(), "invalid");
  ChatRequest& request = *parsed;
  exchange.request.body = std::string();
  request.chat.kwargs_json = merge_kwargs(context.options.default_chat_template_kwargs, request.chat.kwargs_json);
  const auto prepare = [&](Plan* plan) -> Status {
    const Result<std::string> text = context.engine().chat_text(request.chat, plan->adapter);
    if (!text.ok()) return text.status();
    CADRE_TRY(check_text(context, *text));
    Result<std::vector<std::int32_t>> ids = context.engine().encode(*text, request.add_special_tokens.value_or(false));
    if (!ids.ok()) return ids.status();
    CADRE_TRY(check_ids(context, *ids));
    plan->prompts.push_back({.ids = *std::move(ids)});
    return {};
  };
  const auto make_reply = [&](const Plan& plan) {
    return chat_reply(request, reply_info(context, request, kChatPrefix, plan.adapter), plan.prompts.front(),
                      token_text(context));
  };
  generate(context, std::move(exchange), request, 1, request.prompt_logprobs, prepare, make_reply);
}

void completions(Context& context, Exchange exchange) {
  ApiResult<CompletionRequest> parsed = parse_completion_request(exchange.request.body, context.request_limits);
  if (!parsed.ok()) return refuse(context, exchange, parsed.error(), "invalid");
  const CompletionRequest& request = *parsed;
  exchange.request.body = std::string();
  const auto prepare = [&](Plan* plan) -> Status {
    for (const Prompt& prompt : request.prompts) {
      PromptTokens tokens;
      if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) {
        tokens.ids = *ids;
        if (request.echo) {
          Result<std::string> text = context.engine().decode(*ids, /*skip_special_tokens=*/false);
          if (!text.ok()) return text.status();
          tokens.text = *std::move(text);
        }
      } else {
        const std::string& text = std::get<std::string>(prompt);
        CADRE_TRY(check_text(context, text));
        Result<std::vector<std::int32_t>> encoded =
            context.engine().encode(text, request.add_special_tokens.value_or(true));
        if (!encoded.ok()) return encoded.status();
        tokens.ids = *std::move(encoded);
        tokens.text = text;
      }
      CADRE_TRY(check_ids(context, tokens.ids));
      plan->prompts.push_back(std::move(tokens));
    }
    return {};
  };
  const auto make_reply = [&](const Plan& plan) {
    return completion_reply(request, reply_info(context, request, kCompletionPrefix, plan.adapter), plan.prompts,
                            token_text(context));
  };
  generate(context, std::move(exchange), request, request.prompts.size(), request.engine_prompt_logprobs(), prepare,
           make_reply);
}

}  // namespace cadre::server
