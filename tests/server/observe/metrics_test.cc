#include "server/observe/metrics.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace cadre::server {
namespace {

// A scrape taken apart by the rules of the text format, line by line; anything out of form is a failure.
struct Scrape {
  std::map<std::string, std::string> types;  // of each family
  std::map<std::string, double> values;      // "name{a=\"x\",b=\"y\"}", labels sorted

  static bool is_name(std::string_view name) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:") == name.npos;
  }

  void sample(const std::string& line) {
    const std::size_t space = line.rfind(' ');
    ASSERT_NE(space, line.npos) << line;
    const std::string series = line.substr(0, space), number = line.substr(space + 1);
    const std::size_t brace = series.find('{');
    const std::string name = series.substr(0, brace);
    ASSERT_TRUE(is_name(name)) << line;
    std::map<std::string, std::string> labels;
    if (brace != series.npos) {
      std::size_t at = brace + 1;
      while (series.at(at) != '}') {
        const std::size_t equals = series.find('=', at);
        ASSERT_NE(equals, series.npos) << line;
        const std::string label = series.substr(at, equals - at);
        ASSERT_TRUE(is_name(label)) << line;
        ASSERT_EQ(series.at(equals + 1), '"') << line;
        std::string value;
        for (at = equals + 2; series.at(at) != '"'; ++at) {
          if (series.at(at) == '\\') ++at;
          value += series.at(at);
        }
        EXPECT_TRUE(labels.emplace(label, value).second) << line;
        ++at;
        if (series.at(at) == ',') ++at;
      }
      ASSERT_EQ(at + 1, series.size()) << line;
    }
    std::string key = name + "{";
    for (const auto& [label, value] : labels) key += (key.back() == '{' ? "" : ",") + label + "=\"" + value + "\"";
    double value = 0;
    if (number == "+Inf") {
      value = INFINITY;
    } else {
      const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), value);
      ASSERT_TRUE(failed == std::errc() && end == number.data() + number.size()) << line;
    }
    EXPECT_TRUE(values.emplace(key + "}", value).second) << "twice: " << line;
    std::string family = name;
    for (const char* ending : {"_bucket", "_sum", "_count"}) {
      const std::string base = name.substr(0, name.size() - std::min(name.size(), std::string(ending).size()));
      if (name.ends_with(ending) && types.contains(base)) family = base;
    }
    EXPECT_TRUE(types.contains(family)) << "no # TYPE before " << line;
  }

  explicit Scrape(const std::string& text) {
    EXPECT_TRUE(text.ends_with('\n'));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string hash, what, name, type;
      if (!line.starts_with("#")) {
        sample(line);
        continue;
      }
      words >> hash >> what >> name;
      EXPECT_TRUE(is_name(name)) << line;
      if (what == "TYPE") {
        words >> type;
        EXPECT_TRUE(types.emplace(name, type).second) << "twice: " << line;
        // A counter's name says so, which is what readers of the newer format ask for.
        EXPECT_EQ(type == "counter", name.ends_with("_total")) << line;
      } else {
        EXPECT_EQ(what, "HELP") << line;
      }
    }
  }

  double operator[](const std::string& series) const {
    const auto at = values.find(series);
    EXPECT_NE(at, values.end()) << series;
    return at == values.end() ? NAN : at->second;
  }
  // How many series a family has.
  int count(const std::string& name) const {
    int found = 0;
    for (const auto& [series, value] : values) found += series.starts_with(name + "{");
    return found;
  }
};

MetricsOptions options() {
  return {.model_name = "m", .routes = {"/v1/models", "/health"}, .now = [] { return 1795988202.5; }};
}

TEST(Metrics, OfTheEngine) {
  const Metrics metrics(options());
  EngineStats stats;
  stats.running = 3;
  stats.waiting = 7;
  stats.slots = 4;
  stats.slots_used = 2;
  stats.pages = 200;
  stats.pages_in_use = 50;
  stats.pages_cached = 100;
  stats.prefix_queries = 1'000'000'007;
  stats.prefix_hits = 400;
  stats.preemptions = 2;
  stats.steps = 11;
  stats.rows = 99;
  stats.prompt_tokens = 12'345'678;
  stats.generated_tokens = 5;
  stats.adapters = {{"", 1, 0}, {"spanish", 2, 1}, {"jargon", 0, 6}, {"elements", 1, 0}};
  stats.backends = {{"cpu_vector", 1.5, 10}, {"cpu_reference", 0.25, 2}};
  std::vector<AdapterInfo> adapters(6);
  adapters[0].slot = 0;
  adapters[1].slot = 1;
  for (int i = 2; i < 6; ++i) adapters[i].slot = -1;
  adapters[5].in_memory = false;
  const Scrape scrape(metrics.text(stats, adapters));
  const std::string m = "{model_name=\"m\"}";
  EXPECT_EQ(scrape["vllm:num_requests_running" + m], 3);
  EXPECT_EQ(scrape["vllm:num_requests_waiting" + m], 7);
  EXPECT_EQ(scrape["vllm:kv_cache_usage_perc" + m], 0.25);
  EXPECT_EQ(scrape["vllm:gpu_cache_usage_perc" + m], 0.25);
  EXPECT_EQ(scrape["vllm:prefix_cache_queries_total" + m], 1'000'000'007);
  EXPECT_EQ(scrape["vllm:prefix_cache_hits_total" + m], 400);
  EXPECT_EQ(scrape["vllm:num_preemptions_total" + m], 2);
  EXPECT_EQ(scrape["vllm:prompt_tokens_total" + m], 12'345'678);
  EXPECT_EQ(scrape["vllm:generation_tokens_total" + m], 5);
  EXPECT_EQ(scrape["vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"spanish,elements\","
                   "waiting_lora_adapters=\"spanish,jargon\"}"],
            1795988202.5);
  EXPECT_EQ(scrape.count("vllm:lora_requests_info"), 1);
  EXPECT_EQ(scrape["cadre_moe_backend_seconds_total{backend=\"cpu_vector\"}"], 1.5);
  EXPECT_EQ(scrape["cadre_moe_backend_calls_total{backend=\"cpu_reference\"}"], 2);
  EXPECT_EQ(scrape["cadre_adapters{tier=\"slot\"}"], 2);
  EXPECT_EQ(scrape["cadre_adapters{tier=\"memory\"}"], 3);
  EXPECT_EQ(scrape["cadre_adapters{tier=\"disk\"}"], 1);
  EXPECT_EQ(scrape["cadre_adapter_slots_used" + m], 2);
  EXPECT_EQ(scrape.types.at("vllm:num_requests_running"), "gauge");
  EXPECT_EQ(scrape.types.at("vllm:prompt_tokens_total"), "counter");
  EXPECT_EQ(scrape.types.at("vllm:time_to_first_token_seconds"), "histogram");
}

TEST(Metrics, BeforeTheFirstRequest) {
  const Metrics metrics(options());
  const Scrape scrape(metrics.text({}, {}));
  EXPECT_EQ(scrape["vllm:kv_cache_usage_perc{model_name=\"m\"}"], 0);
  EXPECT_EQ(scrape["vllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"}"], 0);
  EXPECT_EQ(scrape["vllm:time_to_first_token_seconds_count{model_name=\"m\"}"], 0);
  EXPECT_EQ(scrape["cadre_connections{}"], 0);
  EXPECT_EQ(scrape["vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"}"],
            1795988202.5);
  EXPECT_EQ(scrape.count("cadre_moe_backend_seconds_total"), 0);
}

TEST(Metrics, Recorded) {
  Metrics metrics(options());
  metrics.first_token(0.003);
  metrics.first_token(3);
  metrics.next_token(0.5);
  metrics.next_token(0.04, 4);
  metrics.finished({.reason = FinishReason::kStop,
                    .adapter = "spanish",
                    .tenant = "a",
                    .seconds = 2,
                    .queue_seconds = 0.5,
                    .prompt_tokens = 10,
                    .generated_tokens = 20});
  metrics.finished({.reason = FinishReason::kCancelled, .seconds = 1, .prompt_tokens = 1});
  metrics.finished({.reason = FinishReason::kError});
  metrics.rejected("queue_full");
  metrics.rejected("queue_full");
  metrics.http_request("/v1/models", 200, 0.1);
  metrics.http_request("/v1/models", 404, 0.1);
  metrics.http_request("/etc/passwd", 404, 0.1);
  metrics.http_request("/x", 99'999, 0.1);
  metrics.adapter_loaded(0.2);
  metrics.adapter_load_failed();
  metrics.connections(1);
  const Scrape scrape(metrics.text({}, {}));
  const auto bucket = [&](const std::string& name, const std::string& le) {
    return scrape[name + "_bucket{le=\"" + le + "\",model_name=\"m\"}"];
  };
  EXPECT_EQ(bucket("vllm:time_to_first_token_seconds", "0.0025"), 0);
  EXPECT_EQ(bucket("vllm:time_to_first_token_seconds", "0.005"), 1);
  EXPECT_EQ(bucket("vllm:time_to_first_token_seconds", "2.5"), 1);
  EXPECT_EQ(bucket("vllm:time_to_first_token_seconds", "5"), 2);
  EXPECT_EQ(bucket("vllm:time_to_first_token_seconds", "+Inf"), 2);
  EXPECT_DOUBLE_EQ(scrape["vllm:time_to_first_token_seconds_sum{model_name=\"m\"}"], 3.003);
  for (const char* name : {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"}) {
    EXPECT_EQ(bucket(name, "0.01"), 4) << name;  // a bound is within its bucket
    EXPECT_EQ(bucket(name, "0.4"), 4) << name;
    EXPECT_EQ(bucket(name, "0.5"), 5) << name;
  }
  EXPECT_EQ(scrape["vllm:e2e_request_latency_seconds_count{model_name=\"m\"}"], 3);
  EXPECT_EQ(scrape["vllm:request_queue_time_seconds_sum{model_name=\"m\"}"], 0.5);
  EXPECT_EQ(scrape["vllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"}"], 1);
  EXPECT_EQ(scrape["vllm:request_success_total{finished_reason=\"abort\",model_name=\"m\"}"], 1);
  EXPECT_EQ(scrape["vllm:request_success_total{finished_reason=\"error\",model_name=\"m\"}"], 1);
  EXPECT_EQ(scrape["vllm:request_success_total{finished_reason=\"length\",model_name=\"m\"}"], 0);
  EXPECT_EQ(scrape["cadre_adapter_requests_total{adapter=\"spanish\"}"], 1);
  EXPECT_EQ(scrape["cadre_adapter_requests_total{adapter=\"\"}"], 2);
  EXPECT_EQ(scrape["cadre_tenant_tokens_total{kind=\"generated\",tenant=\"a\"}"], 20);
  EXPECT_EQ(scrape["cadre_tenant_tokens_total{kind=\"prompt\",tenant=\"anonymous\"}"], 1);
  EXPECT_EQ(scrape["cadre_rejected_total{reason=\"queue_full\"}"], 2);
  EXPECT_EQ(scrape["cadre_http_requests_total{route=\"/v1/models\",status=\"200\"}"], 1);
  EXPECT_EQ(scrape["cadre_http_requests_total{route=\"other\",status=\"404\"}"], 1);
  EXPECT_EQ(scrape["cadre_http_requests_total{route=\"other\",status=\"other\"}"], 1);
  EXPECT_EQ(scrape["cadre_http_request_seconds_count{}"], 4);
  EXPECT_EQ(scrape["cadre_adapter_load_seconds_bucket{le=\"0.25\"}"], 1);
  EXPECT_EQ(scrape["cadre_adapter_load_failures_total{}"], 1);
  EXPECT_EQ(scrape["cadre_connections{}"], 1);
}

TEST(Metrics, LabelsAreBounded) {
  MetricsOptions few = options();
  few.max_adapters = 3;
  few.max_tenants = 2;
  Metrics metrics(few);
  for (int i = 0; i < 1'000; ++i) {
    const std::string name = "n" + std::to_string(i);
    metrics.finished({.adapter = name, .tenant = name, .prompt_tokens = 1});
    metrics.rejected(name);
    metrics.http_request("/" + name, i, 0);
  }
  const Scrape scrape(metrics.text({}, {}));
  EXPECT_EQ(scrape.count("cadre_adapter_requests_total"), 4);
  EXPECT_EQ(scrape["cadre_adapter_requests_total{adapter=\"n2\"}"], 1);
  EXPECT_EQ(scrape["cadre_adapter_requests_total{adapter=\"other\"}"], 997);
  EXPECT_EQ(scrape.count("cadre_tenant_tokens_total"), 6);
  EXPECT_EQ(scrape["cadre_tenant_tokens_total{kind=\"prompt\",tenant=\"other\"}"], 998);
  EXPECT_EQ(scrape.count("cadre_rejected_total"), 33);
  EXPECT_LE(scrape.count("cadre_http_requests_total"), 66);
  // Those that were first keep their name.
  metrics.finished({.adapter = "n0"});
  EXPECT_EQ(Scrape(metrics.text({}, {}))["cadre_adapter_requests_total{adapter=\"n0\"}"], 2);
}

TEST(Metrics, ListsOfAdaptersAreBounded) {
  const Metrics metrics(options());
  EngineStats stats;
  for (int i = 0; i < 100'000; ++i) stats.adapters.push_back({"adapter" + std::to_string(i), 1, 1});
  EXPECT_LT(metrics.text(stats, {}).size(), 40'000u);
}

TEST(Metrics, LabelsThatWouldBreakOut) {
  MetricsOptions odd = options();
  odd.model_name = "a\"b\\c\nd";
  const Metrics metrics(odd);
  const std::string text = metrics.text({}, {});
  EXPECT_NE(text.find("vllm:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\"} 0"), std::string::npos);
  const Scrape scrape(text);  // still one sample a line
}

TEST(Metrics, FromManyThreads) {
  Metrics metrics(options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        metrics.first_token(0.1);
        metrics.next_token(0.1);
        metrics.finished({.reason = FinishReason::kStop, .adapter = "a" + std::to_string(i % 150)});
        metrics.http_request("/health", 200 + t, 0.1);
        metrics.rejected("queue_full");
        metrics.connections(0);
        if (i % 100 == 0) const Scrape scrape(metrics.text({}, {}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Scrape scrape(metrics.text({}, {}));
  EXPECT_EQ(scrape["vllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"}"], 2'000);
  EXPECT_EQ(scrape["cadre_rejected_total{reason=\"queue_full\"}"], 2'000);
  EXPECT_EQ(scrape["cadre_http_requests_total{route=\"/health\",status=\"203\"}"], 500);
  EXPECT_EQ(scrape["cadre_connections{}"], 0);
  EXPECT_EQ(scrape.count("cadre_adapter_requests_total"), 101);
}

}  // namespace
}  // namespace cadre::server
