#include "server/observe/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <locale>
#include <sstream>

#include "server/observe/label_set.h"

namespace cadre::server {
namespace {

using prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

// Seconds. The bounds of vLLM, on which dashboards compute their percentiles, and finer ones below for small models.
const Buckets kFirstToken{0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                          1,     2.5,    5,     7.5,  10,   20,   40,   80,   160, 640,  2560};
const Buckets kNextToken{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                         0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
const Buckets kWhole{0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,
                     15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
const Buckets kLoad{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

constexpr std::size_t kMaxAdaptersInList = 256;

// Of EngineStats, which the engine already counts: written as they are at a scrape.
prometheus::MetricFamily family(std::string_view name, std::string_view help, prometheus::MetricType type) {
  prometheus::MetricFamily made;
  made.name = name;
  made.help = help;
  made.type = type;
  return made;
}

void add(prometheus::MetricFamily& to, const Labels& labels, double value) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  if (to.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  to.metric.push_back(std::move(metric));
}

// vLLM's word for each end of a request.
const char* finished_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
    default:
      return "abort";
  }
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(MetricsOptions given)
      : options(std::move(given)),
        model{{"model_name", options.model_name}},
        adapters(options.max_adapters),
        tenants(options.max_tenants),
        reasons(32),
        statuses(64) {}

  prometheus::Counter& counter(const std::string& name, const std::string& help, const Labels& labels) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(model, buckets);
  }
  prometheus::Family<prometheus::Counter>& counters(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Labels with_model(Labels labels) const {
    labels.insert(model.begin(), model.end());
    return labels;
  }

  const MetricsOptions options;
  const Labels model;
  LabelSet adapters, tenants, reasons, statuses;
  prometheus::Registry registry;

  prometheus::Histogram& first_token =
      histogram("vllm:time_to_first_token_seconds", "Time from arrival to the first token.", kFirstToken);
  prometheus::Histogram& inter_token =
      histogram("vllm:inter_token_latency_seconds", "Time between two tokens of a request.", kNextToken);
  // The name that vLLM had before; routers and dashboards of that time read it.
  prometheus::Histogram& per_output_token = histogram(
      "vllm:time_per_output_token_seconds", "As vllm:inter_token_latency_seconds, by its former name.", kNextToken);
  prometheus::Histogram& e2e =
      histogram("vllm:e2e_request_latency_seconds", "Time from arrival to the last token.", kWhole);
  prometheus::Histogram& queue =
      histogram("vllm:request_queue_time_seconds", "Time from arrival until the request first ran.", kWhole);
  prometheus::Family<prometheus::Counter>& success =
      counters("vllm:request_success_total", "Requests that ended, by why.");
  prometheus::Family<prometheus::Counter>& adapter_requests =
      counters("cadre_adapter_requests_total", "Requests that ended, by adapter; empty: the base model.");
  prometheus::Family<prometheus::Counter>& tenant_tokens =
      counters("cadre_tenant_tokens_total", "Tokens of requests that ended, by tenant.");
  prometheus::Family<prometheus::Counter>& rejected =
      counters("cadre_rejected_total", "Requests refused before they ran, by why.");
  prometheus::Family<prometheus::Counter>& http = counters("cadre_http_requests_total", "HTTP requests answered.");
  prometheus::Histogram& http_seconds = prometheus::BuildHistogram()
                                            .Name("cadre_http_request_seconds")
                                            .Help("Time to answer an HTTP request, to its last byte.")
                                            .Register(registry)
                                            .Add({}, kWhole);
  prometheus::Histogram& load = prometheus::BuildHistogram()
                                    .Name("cadre_adapter_load_seconds")
                                    .Help("Time to read an adapter and make it usable.")
                                    .Register(registry)
                                    .Add({}, kLoad);
  prometheus::Counter& load_failures =
      counter("cadre_adapter_load_failures_total", "Adapters that were refused or could not be read.", {});
  prometheus::Gauge& connections =
      prometheus::BuildGauge().Name("cadre_connections").Help("Connections open now.").Register(registry).Add({});

  std::vector<prometheus::MetricFamily> of_engine(const EngineStats& stats, std::span<const AdapterInfo> loaded) const;
  prometheus::MetricFamily lora_info(const EngineStats& stats) const;
};

Metrics::Metrics(MetricsOptions options) {
  if (!options.now) {
    options.now = [] {
      return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    };
  }
  impl_ = std::make_unique<Impl>(std::move(options));
  // Series that exist from the start: a rate over a counter that appears with its first event misses that event.
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    impl_->success.Add(impl_->with_model({{"finished_reason", reason}}));
  }
}

Metrics::~Metrics() = default;

void Metrics::first_token(double seconds) { impl_->first_token.Observe(seconds); }

void Metrics::next_token(double seconds, int count) {
  for (int i = 0; i < count; ++i) {
    const double each = seconds / count;
    impl_->inter_token.Observe(each);
    impl_->per_output_token.Observe(each);
  }
}

void Metrics::finished(const FinishedRequest& request) {
  Impl& impl = *impl_;
  impl.success.Add(impl.with_model({{"finished_reason", finished_reason(request.reason)}})).Increment();
  impl.e2e.Observe(request.seconds);
  impl.queue.Observe(request.queue_seconds);
  impl.adapter_requests.Add({{"adapter", impl.adapters.value(request.adapter)}}).Increment();
  const std::string tenant = impl.tenants.value(request.tenant.empty() ? "anonymous" : request.tenant);
  const auto tokens = [&](const char* kind, std::int64_t count) {
    impl.tenant_tokens.Add({{"tenant", tenant}, {"kind", kind}})
        .Increment(static_cast<double>(std::max<std::int64_t>(0, count)));
  };
  tokens("prompt", request.prompt_tokens);
  tokens("generated", request.generated_tokens);
}

void Metrics::rejected(std::string_view reason) {
  impl_->rejected.Add({{"reason", impl_->reasons.value(reason)}}).Increment();
}

void Metrics::http_request(std::string_view route, int status, double seconds) {
  const std::vector<std::string>& routes = impl_->options.routes;
  const bool known = std::find(routes.begin(), routes.end(), route) != routes.end();
  const bool valid = status >= 100 && status <= 599;
  const std::string code = valid ? impl_->statuses.value(std::to_string(status)) : "other";
  impl_->http.Add({{"route", known ? std::string(route) : "other"}, {"status", code}}).Increment();
  impl_->http_seconds.Observe(seconds);
}

void Metrics::adapter_loaded(double seconds) { impl_->load.Observe(seconds); }
void Metrics::adapter_load_failed() { impl_->load_failures.Increment(); }
void Metrics::connections(std::int64_t open) { impl_->connections.Set(static_cast<double>(open)); }

// One series, made anew for each scrape: the names are its labels, so keeping old ones would keep every mix there ever
// was. Its value is the time, by which readers that see several take the latest.
prometheus::MetricFamily Metrics::Impl::lora_info(const EngineStats& stats) const {
  std::string running, waiting;
  std::size_t in_running = 0, in_waiting = 0;
  const auto append = [](std::string& list, std::size_t& count, const std::string& name) {
    if (count++ >= kMaxAdaptersInList) return;
    if (!list.empty()) list += ',';
    list += name;
  };
  for (const AdapterLoad& adapter : stats.adapters) {
    if (adapter.name.empty()) continue;
    if (adapter.running > 0) append(running, in_running, adapter.name);
    if (adapter.waiting > 0) append(waiting, in_waiting, adapter.name);
  }
  prometheus::MetricFamily info =
      family("vllm:lora_requests_info", "Adapters with requests that run or wait; the value is the time.",
             prometheus::MetricType::Gauge);
  add(info,
      {{"max_lora", std::to_string(stats.slots)},
       {"running_lora_adapters", running},
       {"waiting_lora_adapters", waiting}},
      options.now());
  return info;
}

std::vector<prometheus::MetricFamily> Metrics::Impl::of_engine(const EngineStats& stats,
                                                               std::span<const AdapterInfo> loaded) const {
  std::vector<prometheus::MetricFamily> all;
  const auto single = [&](std::string_view name, std::string_view help, prometheus::MetricType type, double value) {
    prometheus::MetricFamily made = family(name, help, type);
    add(made, model, value);
    all.push_back(std::move(made));
  };
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    single(name, help, prometheus::MetricType::Gauge, value);
  };
  const auto count = [&](std::string_view name, std::string_view help, std::int64_t value) {
    single(name, help, prometheus::MetricType::Counter, static_cast<double>(value));
  };
  gauge("vllm:num_requests_running", "Requests in the present batch.", stats.running);
  gauge("vllm:num_requests_waiting", "Requests that wait for a place.", stats.waiting);
  // As in vLLM: what the prefix cache alone holds is free, since it is given up when needed.
  const double usage = stats.pages > 0 ? static_cast<double>(stats.pages_in_use) / static_cast<double>(stats.pages) : 0;
  gauge("vllm:kv_cache_usage_perc", "Share of the cache that requests hold; 1 is all.", usage);
  gauge("vllm:gpu_cache_usage_perc", "As vllm:kv_cache_usage_perc, by its former name.", usage);
  count("vllm:prompt_tokens_total", "Tokens of prompts computed.", stats.prompt_tokens);
  count("vllm:generation_tokens_total", "Tokens generated.", stats.generated_tokens);
  count("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", stats.prefix_queries);
  count("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", stats.prefix_hits);
  count("vllm:num_preemptions_total", "Requests that gave way and were computed again.", stats.preemptions);
  count("cadre_engine_steps_total", "Batches computed.", stats.steps);
  count("cadre_engine_rows_total", "Rows of all batches.", stats.rows);
  gauge("cadre_cache_pages", "Pages of the cache.", static_cast<double>(stats.pages));
  gauge("cadre_cache_pages_prefix", "Pages that the prefix cache alone holds.",
        static_cast<double>(stats.pages_cached));
  gauge("cadre_adapter_slots", "Adapters that one batch can mix.", stats.slots);
  gauge("cadre_adapter_slots_used", "Slots in use.", stats.slots_used);
  all.push_back(lora_info(stats));

  prometheus::MetricFamily seconds =
      family("cadre_moe_backend_seconds_total", "Time in the kernels of MoE layers.", prometheus::MetricType::Counter);
  prometheus::MetricFamily calls =
      family("cadre_moe_backend_calls_total", "Calls of MoE layers.", prometheus::MetricType::Counter);
  for (const BackendTime& backend : stats.backends) {
    add(seconds, {{"backend", backend.backend}}, backend.seconds);
    add(calls, {{"backend", backend.backend}}, static_cast<double>(backend.calls));
  }
  all.push_back(std::move(seconds));
  all.push_back(std::move(calls));

  std::array<double, 3> tiers{};
  for (const AdapterInfo& adapter : loaded) ++tiers[adapter.slot >= 0 ? 0 : adapter.in_memory ? 1 : 2];
  prometheus::MetricFamily tier =
      family("cadre_adapters", "Adapters loaded, by where their content is.", prometheus::MetricType::Gauge);
  add(tier, {{"tier", "slot"}}, tiers[0]);
  add(tier, {{"tier", "memory"}}, tiers[1]);
  add(tier, {{"tier", "disk"}}, tiers[2]);
  all.push_back(std::move(tier));
  return all;
}

std::string Metrics::text(const EngineStats& stats, std::span<const AdapterInfo> adapters) const {
  std::vector<prometheus::MetricFamily> all = impl_->of_engine(stats, adapters);
  for (prometheus::MetricFamily& recorded : impl_->registry.Collect()) {
    // Labels come in no order of their own; a fixed one compares between scrapes.
    std::sort(recorded.metric.begin(), recorded.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
    all.push_back(std::move(recorded));
  }
  // A family without a series would be a headline alone.
  std::erase_if(all, [](const prometheus::MetricFamily& empty) { return empty.metric.empty(); });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::ostringstream out;
  out.imbue(std::locale::classic());
  prometheus::TextSerializer().Serialize(out, all);
  return std::move(out).str();
}

}  // namespace cadre::server
