// Context: what all routes share. Its parts are thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "server/access/access.h"
#include "server/access/adapter_root.h"
#include "server/access/limits.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/openai/api_error.h"
#include "server/openai/request.h"
#include "server/service/engine_loop.h"
#include "server/service/serve_options.h"

namespace cadre::server {

struct Context {
  ServeOptions options;
  std::string version;       // of the program
  std::int64_t started = 0;  // seconds since 1970
  RequestLimits request_limits;
  std::unique_ptr<Log> log;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<Access> access;
  std::unique_ptr<Limiter> limiter;
  std::optional<AdapterRoot> adapter_root;
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<HttpServer> http;
  std::atomic<bool> draining = false;

  const Engine& engine() const { return loop->engine(); }
  const std::string& base_name() const { return options.served_model_names.front(); }
};

// One request on its way: who asks, and how to answer.
struct Exchange {
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
  std::string id;          // of the request
  std::string_view route;  // of the fixed table
  Caller caller;
  double arrived = 0;  // seconds of the steady clock
};

double steady_seconds();

// Answers, counts and logs.
void answer(Context& context, Exchange& exchange, int status, const std::string& body,
            std::string_view content_type = "application/json", HttpHeaders further = {});
void refuse(Context& context, Exchange& exchange, const ApiError& error, std::string_view reason,
            std::int64_t retry_after_s = 0);
void refuse(Context& context, Exchange& exchange, const Refusal& refusal);
ApiError to_api_error(const Refusal& refusal);
// Paths in the message are for the operator only; others read it without.
ApiError to_api_error(const Exchange& exchange, const Status& status);
HttpHeaders refusal_headers(const Exchange& exchange, const Refusal& refusal);
HttpHeaders reply_headers(const Exchange& exchange, std::string_view content_type);
// The line of a request at its end.
void log_request(Context& context, const Exchange& exchange, int status, std::span<const LogField> further = {});

// What `model` of a request names, if the caller may use it: the base model (null), or an adapter's present version.
// "NAME", or SGLang's "BASE:NAME".
ApiResult<AdapterRef> find_model(const Context& context, const Caller& caller, const std::string& model);

}  // namespace cadre::server
