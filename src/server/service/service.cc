#include "server/service/service.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/result.h"
#include "server/access/names.h"
#include "server/openai/bodies.h"
#include "server/service/adapters.h"
#include "server/service/generate.h"
#include "server/service/models.h"
#include "server/service/work_queue.h"

namespace cadre::server {
namespace {

class Server;

// Where the work of a route is done.
enum class Place : std::uint8_t {
  kHere,     // on the network's thread: nothing to compute
  kWorkers,  // parses, tokenises, and hands over to the engine
  kAside,    // may take long and must not hold up those: tokenizer routes, and what waits for the engine
  kAdmin     // reads adapters: one after the other
};

struct Route {
  std::string_view method, path;
  Place place;
  bool needs_key;
  void (*run)(Server& server, Exchange exchange);
};

constexpr int kWorkers = 2;
// Bytes of bodies that wait for a thread.
constexpr std::size_t kMaxWaiting = std::size_t{256} << 20, kMaxAside = std::size_t{64} << 20, kMaxAdmin = 1 << 20;

std::vector<std::string> route_names();

class Server final : public Service {
 public:
  static Result<std::unique_ptr<Server>> make(ServeOptions options, std::unique_ptr<Engine> engine,
                                              std::string version);
  ~Server() override { stop(0); }

  std::string address() const override { return context.http->address(); }
  void reload() override;
  void drain() override;
  bool stop(double wait_s) override;
  void on_failure(std::function<void(const Status&)> call) override {
    context.loop->on_failure([this, call = std::move(call)] { call(context.loop->failure()); });
  }

  Context context;
  AdapterRoom room{context};

 private:
  Server() = default;
  const Route* begin(HttpRequest request, Exchange* exchange, std::string* allowed) const;
  std::optional<Refusal> identify(const Route* route, Exchange* exchange) const;
  std::optional<HttpHeadRefusal> check_head(HttpRequest& head);
  void handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply);
  void dispatch(const Route& route, Exchange exchange);

  std::unique_ptr<WorkQueue> workers_, aside_, admin_;
  bool stopped_ = false;
};

void health(Server& server, Exchange exchange) {
  const Status failure = server.context.loop->failure();
  if (failure.ok()) return answer(server.context, exchange, 200, "", "text/plain");
  refuse(server.context, exchange, api_error(503, "the engine failed"), "failed");
}

void ready(Server& server, Exchange exchange) {
  if (server.context.draining) {
    return refuse(server.context, exchange, api_error(503, "the server is shutting down"), "draining", 1);
  }
  health(server, std::move(exchange));
}

constexpr std::string_view kModel = "/v1/models/";  // and a name

const Route kRoutes[] = {
    {"GET", "/health", Place::kHere, false, health},
    {"GET", "/ready", Place::kHere, true, ready},
    {"GET", "/version", Place::kHere, true,
     [](Server& s, Exchange e) { answer(s.context, e, 200, version_body(s.context.version)); }},
    {"GET", "/metrics", Place::kAside, true, [](Server& s, Exchange e) { metrics(s.context, std::move(e)); }},
    {"GET", "/explain", Place::kAside, true, [](Server& s, Exchange e) { explain(s.context, std::move(e)); }},
    {"GET", "/v1/models", Place::kHere, true, [](Server& s, Exchange e) { list_models(s.context, std::move(e)); }},
    {"GET", kModel, Place::kHere, true,
     [](Server& s, Exchange e) {
       const std::string name = e.request.path.substr(kModel.size());
       show_model(s.context, std::move(e), name);
     }},
    {"POST", kChatRoute, Place::kWorkers, true,
     [](Server& s, Exchange e) { chat_completions(s.context, std::move(e)); }},
    {"POST", "/v1/completions", Place::kWorkers, true,
     [](Server& s, Exchange e) { completions(s.context, std::move(e)); }},
    {"POST", "/tokenize", Place::kAside, true, [](Server& s, Exchange e) { tokenize(s.context, std::move(e)); }},
    {"POST", "/detokenize", Place::kAside, true, [](Server& s, Exchange e) { detokenize(s.context, std::move(e)); }},
    {"POST", "/v1/load_lora_adapter", Place::kAdmin, true,
     [](Server& s, Exchange e) { load_adapter(s.context, s.room, std::move(e)); }},
    {"POST", "/v1/unload_lora_adapter", Place::kAdmin, true,
     [](Server& s, Exchange e) { unload_adapter(s.context, s.room, std::move(e)); }},
    {"POST", "/v1/rescan_lora_adapters", Place::kAdmin, true,
     [](Server& s, Exchange e) { rescan_adapters(s.context, s.room, std::move(e)); }},
};

std::vector<std::string> route_names() {
  std::vector<std::string> names;
  for (const Route& route : kRoutes) names.emplace_back(route.path);
  return names;
}

bool matches(const Route& route, std::string_view path) {
  return route.path == kModel ? path.starts_with(kModel) && path.size() > kModel.size() : path == route.path;
}

void Server::dispatch(const Route& route, Exchange exchange) {
  if (route.place == Place::kHere) return route.run(*this, std::move(exchange));
  // Shared, because a std::function is copied.
  auto shared = std::make_shared<Exchange>(std::move(exchange));
  WorkQueue& queue = route.place == Place::kAdmin ? *admin_ : route.place == Place::kAside ? *aside_ : *workers_;
  const std::size_t bytes = shared->request.body.size() + 1024;
  if (queue.post(shared->caller.tenant(), bytes, [this, &route, shared] { route.run(*this, std::move(*shared)); })) {
    return;
  }
  refuse(context, *shared, api_error(503, "the server has too much to do; try again later"), "overloaded", 1);
}

// The route of a request, and what else of the fixed table has its path.
const Route* Server::begin(HttpRequest request, Exchange* exchange, std::string* allowed) const {
  exchange->request = std::move(request);
  exchange->arrived = steady_seconds();
  const std::string_view sent = exchange->request.header("X-Request-Id");
  exchange->id = request_id(sent.empty() ? std::nullopt : std::optional(sent));
  exchange->route = "other";
  const bool head = exchange->request.method == "HEAD";
  const std::string_view method = head ? "GET" : std::string_view(exchange->request.method);
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    if (!matches(route, exchange->request.path)) continue;
    if (route.method == method) found = &route;
    exchange->route = route.path;
    *allowed += (allowed->empty() ? "" : ", ") + std::string(route.method);
  }
  return found;
}

// Who may not ask is told nothing, not even which routes there are.
std::optional<Refusal> Server::identify(const Route* route, Exchange* exchange) const {
  if (route != nullptr && !route->needs_key) return std::nullopt;
  if (const auto known = std::static_pointer_cast<const Caller>(exchange->request.checked); known != nullptr) {
    exchange->caller = *known;
    return std::nullopt;
  }
  const std::string_view authorization = exchange->request.header("Authorization");
  auto who = context.access->identify(authorization.empty() ? std::nullopt : std::optional(authorization));
  if (Refusal* refusal = std::get_if<Refusal>(&who)) return std::move(*refusal);
  exchange->caller = std::get<Caller>(std::move(who));
  return std::nullopt;
}

// Before the body is read: whoever has no key costs no memory.
std::optional<HttpHeadRefusal> Server::check_head(HttpRequest& head) {
  Exchange exchange;
  std::string allowed;
  const Route* route = begin(head, &exchange, &allowed);
  const std::optional<Refusal> refusal = identify(route, &exchange);
  if (!refusal) {
    // The request keeps the rights it came with, and its key is hashed once.
    if (exchange.caller.grant != nullptr) head.checked = std::make_shared<const Caller>(std::move(exchange.caller));
    return std::nullopt;
  }
  context.metrics->rejected(refusal->reason);
  const LogField why("error", refusal->message);
  log_request(context, exchange, refusal->status, {&why, 1});
  return HttpHeadRefusal{refusal->status, refusal_headers(exchange, *refusal), to_api_error(*refusal).body()};
}

void Server::handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
  Exchange exchange;
  exchange.reply = reply;
  std::string allowed;
  const Route* found = begin(std::move(request), &exchange, &allowed);
  if (const std::optional<Refusal> refusal = identify(found, &exchange)) return refuse(context, exchange, *refusal);
  if (found == nullptr && !allowed.empty()) {
    const std::string body = api_error(405, exchange.request.path + " takes " + allowed).body();
    return answer(context, exchange, 405, body, "application/json", {{"Allow", allowed}});
  }
  if (found == nullptr) {
    return refuse(context, exchange, api_error(404, "no route " + shown(exchange.request.path)), "not_found");
  }
  if (context.draining && found->place != Place::kHere && found->method == "POST") {
    return refuse(context, exchange, api_error(503, "the server is shutting down"), "draining", 1);
  }
  dispatch(*found, std::move(exchange));
}

Result<std::unique_ptr<Server>> Server::make(ServeOptions options, std::unique_ptr<Engine> engine,
                                             std::string version) {
  std::unique_ptr<Server> server(new Server());
  Context& c = server->context;
  c.options = std::move(options);
  c.version = std::move(version);
  c.started = static_cast<std::int64_t>(std::time(nullptr));
  c.request_limits.max_body_bytes = c.options.http.max_body_bytes;

  LogOptions log;
  CADRE_ASSIGN(log.format, parse_log_format(c.options.log_format));
  CADRE_ASSIGN(log.level, parse_log_level(c.options.log_level));
  c.log = std::make_unique<Log>(log);
  AccessOptions access;
  access.api_keys = c.options.api_keys;
  access.admin_key = c.options.admin_key;
  access.keys_file = c.options.keys_file;
  CADRE_ASSIGN(c.access, Access::open(std::move(access)));
  LimiterOptions limiter;
  limiter.max_running = c.options.max_num_seqs;
  limiter.max_queued = c.options.max_queued_requests;
  if (!c.options.keys_file.empty()) limiter.reserved = c.options.max_queued_requests / 10;  // several tenants
  c.limiter = std::make_unique<Limiter>(limiter);
  MetricsOptions metrics;
  metrics.model_name = c.base_name();
  metrics.routes = route_names();
  c.metrics = std::make_unique<Metrics>(std::move(metrics));
  if (!c.options.adapter_dir.empty()) {
    AdapterRootOptions root;
    root.max_bytes = c.options.max_adapter_bytes;
    root.max_adapters = c.options.max_adapters;
    CADRE_ASSIGN(c.adapter_root, AdapterRoot::open(c.options.adapter_dir, root).with_context("--adapter-dir"));
  }
  c.loop = std::make_unique<EngineLoop>(std::move(engine));
  if (c.adapter_root) server->room.rescan();
  const auto failed = [log = c.log.get()](std::string_view what) {
    log->write(LogLevel::kError, "request dropped", {{"why", what}});
  };
  server->workers_ = std::make_unique<WorkQueue>(kWorkers, kMaxWaiting, failed);
  server->aside_ = std::make_unique<WorkQueue>(1, kMaxAside, failed);
  server->admin_ = std::make_unique<WorkQueue>(1, kMaxAdmin, failed);
  const auto handler = [self = server.get()](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    self->handle(std::move(request), reply);
  };
  const auto head_check = [self = server.get()](HttpRequest& head) { return self->check_head(head); };
  const auto error_body = [](int status, std::string_view message) {
    return std::pair(api_error(status, std::string(message)).body(), std::string("application/json"));
  };
  CADRE_ASSIGN(c.http,
               HttpServer::listen(c.options.host, c.options.port, c.options.http, handler, error_body, head_check));
  c.http->start();
  return server;
}

void Server::reload() {
  admin_->post("", 0, [this] {
    if (const Status status = context.access->reload(); !status.ok()) {
      context.log->write(LogLevel::kError, "keys stay as they were", {{"why", status.message()}});
    } else {
      context.limiter->retain(context.access->table()->tenants());
      context.log->write(LogLevel::kInfo, "keys read", {{"keys", context.access->table()->size()}});
    }
    if (context.adapter_root) room.rescan();
  });
}

void Server::drain() {
  context.draining = true;
  context.http->drain();
}

bool Server::stop(double wait_s) {
  if (stopped_) return true;
  stopped_ = true;
  context.draining = true;
  // Replies come from the workers and the engine, so those go last.
  const bool complete = context.http == nullptr || context.http->stop(wait_s);
  if (workers_ != nullptr) workers_->stop();
  if (aside_ != nullptr) aside_->stop();
  if (admin_ != nullptr) admin_->stop();
  if (context.loop != nullptr) context.loop->stop();
  return complete;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(ServeOptions options, std::unique_ptr<Engine> engine,
                                                std::string version) {
  CADRE_ASSIGN(std::unique_ptr<Server> server, Server::make(std::move(options), std::move(engine), std::move(version)));
  return std::unique_ptr<Service>(std::move(server));
}

Status Service::check(const ServeOptions& options) {
  AccessOptions access;
  access.api_keys = options.api_keys;
  access.admin_key = options.admin_key;
  access.keys_file = options.keys_file;
  CADRE_TRY(Access::open(std::move(access)).status());
  if (!options.adapter_dir.empty())
    CADRE_TRY(AdapterRoot::open(options.adapter_dir).with_context("--adapter-dir").status());
  return HttpServer::listen(
             options.host, options.port, options.http, [](HttpRequest, std::shared_ptr<HttpReply>) {},
             [](int, std::string_view) { return std::pair<std::string, std::string>(); })
      .status();
}

}  // namespace cadre::server
