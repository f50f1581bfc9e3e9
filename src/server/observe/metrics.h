// What operators and gateways read from /metrics, in Prometheus' text format. Names that vLLM has are vLLM's, so that
// its dashboards and LoRA-aware routers work as they are; others begin with cadre_. Every label has a bounded number of
// values: routes and reasons come from fixed tables, tenants and adapters are the first so many and then "other".
#pragma once

#include <cadre/engine.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::server {

struct MetricsOptions {
  std::string model_name;           // --served-model-name
  std::vector<std::string> routes;  // all there are, e.g. "/v1/chat/completions"; what is not among them is "other"
  std::size_t max_adapters = 100;   // label values
  std::size_t max_tenants = 100;
  std::function<double()> now;  // seconds since 1970; absent: the system's clock
};

// One request, at its end.
struct FinishedRequest {
  FinishReason reason = FinishReason::kNone;
  std::string_view adapter;  // empty: the base model
  std::string_view tenant;   // empty: anonymous
  double seconds = 0;        // from arrival to the last token
  double queue_seconds = 0;  // of these, until it first ran
  std::int64_t prompt_tokens = 0, generated_tokens = 0;
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(MetricsOptions options);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void first_token(double seconds);                // from arrival
  void next_token(double seconds, int count = 1);  // since the one before; `count` of them came together
  void finished(const FinishedRequest& request);
  // Refused before it ran: Refusal::reason, or "invalid", "not_found". At most 32 different ones.
  void rejected(std::string_view reason);
  void http_request(std::string_view route, int status, double seconds);
  void adapter_loaded(double seconds);
  void adapter_load_failed();
  void connections(std::int64_t open);

  // The whole text. `adapters` as Engine::adapters gives them.
  std::string text(const EngineStats& stats, std::span<const AdapterInfo> adapters) const;
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cadre::server
