#include "server/service/context.h"

#include <algorithm>
#include <chrono>

#include "server/access/names.h"

namespace cadre::server {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

HttpHeaders reply_headers(const Exchange& exchange, std::string_view content_type) {
  return {{"Content-Type", std::string(content_type)}, {"X-Request-Id", exchange.id}};
}

void log_request(Context& context, const Exchange& exchange, int status, std::span<const LogField> further) {
  const double seconds = steady_seconds() - exchange.arrived;
  context.metrics->http_request(exchange.route, status, seconds);
  // A server error is news even to those who do not want every request.
  const LogLevel level = status >= 500 ? LogLevel::kError : LogLevel::kInfo;
  if (!context.options.log_requests && level == LogLevel::kInfo) return;
  std::vector<LogField> fields = {{"request_id", exchange.id},
                                  {"method", exchange.request.method},
                                  {"route", exchange.route},
                                  {"status", status},
                                  {"ms", seconds * 1e3}};
  const std::string tenant = exchange.caller.grant == nullptr ? "" : exchange.caller.tenant();
  if (!tenant.empty()) fields.emplace_back("tenant", tenant);
  fields.insert(fields.end(), further.begin(), further.end());
  context.log->write(level, "request", fields);
}

void answer(Context& context, Exchange& exchange, int status, const std::string& body, std::string_view content_type,
            HttpHeaders further) {
  HttpHeaders headers = reply_headers(exchange, content_type);
  headers.insert(headers.end(), further.begin(), further.end());
  exchange.reply->send(status, headers, body);
  log_request(context, exchange, status);
}

void refuse(Context& context, Exchange& exchange, const ApiError& error, std::string_view reason,
            std::int64_t retry_after_s) {
  HttpHeaders headers = reply_headers(exchange, "application/json");
  if (retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  context.metrics->rejected(reason);
  exchange.reply->send(error.status, headers, error.body());
  const LogField why("error", error.message);
  log_request(context, exchange, error.status, {&why, 1});
}

ApiError to_api_error(const Exchange& exchange, const Status& status) {
  const bool admin = exchange.caller.grant != nullptr && exchange.caller.is_admin();
  return api_error(admin ? status : Status(status.code(), without_paths(status.message())));
}

ApiError to_api_error(const Refusal& refusal) {
  ApiError error = api_error(refusal.status, refusal.message, refusal.code);
  if (!refusal.type.empty()) error.type = refusal.type;
  return error;
}

HttpHeaders refusal_headers(const Exchange& exchange, const Refusal& refusal) {
  HttpHeaders headers = reply_headers(exchange, "application/json");
  if (refusal.retry_after_s > 0) headers.emplace_back("Retry-After", std::to_string(refusal.retry_after_s));
  if (!refusal.www_authenticate.empty()) headers.emplace_back("WWW-Authenticate", refusal.www_authenticate);
  return headers;
}

void refuse(Context& context, Exchange& exchange, const Refusal& refusal) {
  const ApiError error = to_api_error(refusal);
  context.metrics->rejected(refusal.reason);
  exchange.reply->send(error.status, refusal_headers(exchange, refusal), error.body());
  const LogField why("error", error.message);
  log_request(context, exchange, error.status, {&why, 1});
}

ApiResult<AdapterRef> find_model(const Context& context, const Caller& caller, const std::string& model) {
  const std::vector<std::string>& names = context.options.served_model_names;
  const auto is_base = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (model.empty() || is_base(model)) {
    if (!may_use(caller, "")) return model_not_found(model.empty() ? context.base_name() : model);
    return AdapterRef();
  }
  std::string name = model;
  if (const std::size_t colon = model.rfind(':'); colon != std::string::npos && is_base(model.substr(0, colon))) {
    name = model.substr(colon + 1);
  }
  // One answer, whether it is not there or not for this key.
  if (!may_use(caller, name)) return model_not_found(shown(model));
  Result<AdapterRef> found = context.engine().find_adapter(name);
  if (!found.ok() || *found == nullptr) return model_not_found(shown(model));
  return *std::move(found);
}

}  // namespace cadre::server
