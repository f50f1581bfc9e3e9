#include "server/service/models.h"

#include <algorithm>

#include "engine/plan.h"
#include "server/access/names.h"
#include "server/openai/bodies.h"
#include "server/service/generate.h"

namespace cadre::server {
namespace {

std::vector<ModelCard> cards(const Context& context, const Caller& caller) {
  std::vector<ModelCard> out;
  const std::int64_t length = context.engine().max_model_len();
  if (may_use(caller, "")) {
    for (const std::string& name : context.options.served_model_names) {
      out.push_back({.id = name, .created = context.started, .root = name, .max_model_len = length});
    }
  }
  for (const AdapterInfo& info : context.engine().adapters()) {
    if (!may_use(caller, info.name)) continue;
    out.push_back({.id = info.name,
                   .created = context.started,
                   .root = caller.is_admin() ? info.dir : info.name,  // paths are the operator's business
                   .parent = context.base_name(),
                   .max_model_len = length,
                   .digest = info.digest,
                   .version = info.version});
  }
  return out;
}

}  // namespace

void list_models(Context& context, Exchange exchange) {
  answer(context, exchange, 200, models_body(cards(context, exchange.caller)));
}

void show_model(Context& context, Exchange exchange, const std::string& name) {
  for (const ModelCard& card : cards(context, exchange.caller)) {
    if (card.id == name) return answer(context, exchange, 200, model_body(card));
  }
  refuse(context, exchange, model_not_found(shown(name)), "not_found");
}

namespace {

// Long texts cost time, so they count like other requests.
bool admitted(Context& context, Exchange& exchange, Limiter::Ticket* ticket) {
  auto result = context.limiter->admit(exchange.caller);
  if (const Refusal* refusal = std::get_if<Refusal>(&result)) {
    refuse(context, exchange, *refusal);
    return false;
  }
  *ticket = std::move(std::get<Limiter::Ticket>(result));
  return true;
}

}  // namespace

void tokenize(Context& context, Exchange exchange) {
  Limiter::Ticket ticket;
  if (!admitted(context, exchange, &ticket)) return;
  ApiResult<TokenizeRequest> request = parse_tokenize_request(exchange.request.body, context.request_limits);
  if (!request.ok()) return refuse(context, exchange, request.error(), "invalid");
  const ApiResult<AdapterRef> adapter = find_model(context, exchange.caller, request->model);
  if (!adapter.ok()) return refuse(context, exchange, adapter.error(), "not_found");
  Result<std::string> text = std::string();
  if (ChatInput* chat = std::get_if<ChatInput>(&request->input)) {
    chat->kwargs_json = merge_kwargs(context.options.default_chat_template_kwargs, chat->kwargs_json);
    text = context.engine().chat_text(*chat, *adapter);
  } else {
    text = std::get<std::string>(request->input);
  }
  if (!text.ok()) return refuse(context, exchange, to_api_error(exchange, text.status()), "invalid");
  const Result<std::vector<std::int32_t>> ids = context.engine().encode(*text, request->add_special_tokens);
  if (!ids.ok()) return refuse(context, exchange, to_api_error(exchange, ids.status()), "invalid");
  std::optional<std::vector<std::string>> texts;
  if (request->return_token_strs) {
    texts.emplace();
    for (const std::int32_t id : *ids) {
      const Result<std::string> token = context.engine().token_text(id);
      texts->push_back(token.ok() ? *token : "");
    }
  }
  answer(context, exchange, 200, tokenize_body(*ids, context.engine().max_model_len(), texts));
}

void detokenize(Context& context, Exchange exchange) {
  Limiter::Ticket ticket;
  if (!admitted(context, exchange, &ticket)) return;
  const ApiResult<DetokenizeRequest> request = parse_detokenize_request(exchange.request.body, context.request_limits);
  if (!request.ok()) return refuse(context, exchange, request.error(), "invalid");
  const ApiResult<AdapterRef> adapter = find_model(context, exchange.caller, request->model);
  if (!adapter.ok()) return refuse(context, exchange, adapter.error(), "not_found");
  const Result<std::string> text = context.engine().decode(request->tokens, /*skip_special_tokens=*/false);
  if (!text.ok()) return refuse(context, exchange, to_api_error(exchange, text.status()), "invalid");
  answer(context, exchange, 200, detokenize_body(*text));
}

void explain(Context& context, Exchange exchange) {
  if (!may_see_metrics(exchange.caller)) {
    return refuse(context, exchange, api_error(403, "this key may not read the selection, which speaks of all tenants"),
                  "forbidden");
  }
  const std::vector<LayerReport> layers =
      context.loop->call([](Engine& engine) { return std::vector<LayerReport>(engine.selection()); });
  std::vector<Json> list;
  list.reserve(layers.size());
  for (const LayerReport& layer : layers) list.push_back(to_json_value(layer));
  answer(context, exchange, 200, Json::object({{"layers", Json::array(std::move(list))}}).dump());
}

void metrics(Context& context, Exchange exchange) {
  if (!may_see_metrics(exchange.caller)) {
    return refuse(context, exchange, api_error(403, "this key may not read the metrics, which speak of all tenants"),
                  "forbidden");
  }
  const EngineStats stats = context.loop->call([](Engine& engine) { return engine.stats(); });
  context.metrics->connections(context.http->stats().connections);
  answer(context, exchange, 200, context.metrics->text(stats, context.engine().adapters()), Metrics::kContentType);
}

}  // namespace cadre::server
