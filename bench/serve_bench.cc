// What the server costs over the engine alone: the same requests, 32 at a time, first to an Engine in this process and
// then over HTTP to a server of this process, streamed. Best of several runs in turn, because the machine may be
// shared.
//
//   serve_bench MODEL_DIR [ADAPTER_DIR ...] [--threads N] [--requests N] [--tokens N] [--runs N]
#include <cadre/engine.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "io/json.h"
#include "server/load/load_run.h"
#include "server/service/service.h"

namespace cadre {
namespace {

constexpr int kConcurrency = 32;

struct Setup {
  std::string model;
  std::vector<std::string> adapters;
  int threads = 1, requests = 256, tokens = 64, runs = 3;
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void die(const Status& status) {
  std::fprintf(stderr, "serve_bench: %s\n", status.message().c_str());
  std::exit(1);
}

std::string name_of(const std::string& dir) { return std::filesystem::path(dir).filename().string(); }

std::unique_ptr<Engine> open(const Setup& setup) {
  EngineOptions options;
  options.model_dir = setup.model;
  for (const std::string& dir : setup.adapters) options.adapters.push_back({.name = name_of(dir), .dir = dir});
  options.threads = setup.threads;
  options.max_num_seqs = kConcurrency;
  // Prompts differ, so this changes nothing but that both sides do the same.
  options.enable_prefix_caching = false;
  auto engine = Engine::open(std::move(options));
  if (!engine.ok()) die(engine.status());
  return *std::move(engine);
}

std::string prompt(int number) {
  static constexpr const char* kWords[] = {"gold", "iron", "water", "salt", "noble", "metal", "heavy", "light"};
  std::string text = "question " + std::to_string(number) + ":";
  for (int i = 0; i < 24; ++i) text += std::string(" ") + kWords[(number * 7 + i * (number % 5 + 1)) % 8];
  return text;
}

// Output tokens a second.
double engine_alone(const Setup& setup, const std::vector<std::string>& names) {
  const std::unique_ptr<Engine> engine = open(setup);
  const double start = seconds();
  int sent = 0, running = 0;
  std::int64_t tokens = 0;
  while (sent < setup.requests || running > 0) {
    for (; running < kConcurrency && sent < setup.requests; ++sent, ++running) {
      Request request;
      request.prompt = prompt(sent);
      request.adapter = names[static_cast<std::size_t>(sent) % names.size()];
      request.sampling.max_tokens = setup.tokens;
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      if (const auto id = engine->submit(std::move(request)); !id.ok()) die(id.status());
    }
    const auto events = engine->step();
    if (!events.ok()) die(events.status());
    for (const Event& event : *events) {
      tokens += event.token ? 1 : 0;
      running -= event.finish != FinishReason::kNone ? 1 : 0;
    }
  }
  return static_cast<double>(tokens) / (seconds() - start);
}

server::LoadReport over_http(const Setup& setup, const std::vector<std::string>& names, const std::string& prompts) {
  server::ServeOptions serve;
  serve.port = 0;
  serve.served_model_names = {"base"};
  serve.max_num_seqs = kConcurrency;
  serve.log_requests = false;
  auto service = server::Service::start(serve, open(setup), "bench");
  if (!service.ok()) die(service.status());
  server::LoadOptions load;
  load.base_url = "http://" + (*service)->address();
  for (const std::string& name : names) load.targets.push_back({.name = name.empty() ? "base" : name});
  load.chat = false;
  load.max_concurrency = kConcurrency;
  load.num_prompts = setup.requests;
  load.output_len = {setup.tokens, setup.tokens};
  load.prompts_file = prompts;
  load.ignore_eos = true;
  load.temperature = 0;
  auto report = server::run_load(load, {});
  if (!report.ok()) die(report.status());
  (*service)->stop(5);
  return *std::move(report);
}

void compare(const Setup& setup, const char* what, const std::vector<std::string>& names, const std::string& prompts) {
  double alone = 0, served = 0;
  std::string report;
  for (int run = 0; run < setup.runs; ++run) {
    alone = std::max(alone, engine_alone(setup, names));
    const server::LoadReport one = over_http(setup, names, prompts);
    const double rate = static_cast<double>(one.all.output_tokens) / one.seconds;
    if (rate > served) {
      served = rate;
      char text[128];
      std::snprintf(text, sizeof text, "ttft p50 %.1f p95 %.1f ms, itl p50 %.2f p95 %.2f ms", one.all.ttft.p50,
                    one.all.ttft.p95, one.all.itl.p50, one.all.itl.p95);
      report = text;
    }
  }
  std::printf("%-14s %10.0f %10.0f %8.1f %%   %s\n", what, alone, served, 100 * (alone / served - 1), report.c_str());
}

int run(const Setup& setup) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("cadre_serve_bench_" + std::to_string(::getpid()) + ".jsonl");
  std::ofstream out(file);
  for (int i = 0; i < setup.requests; ++i) out << Json(prompt(i)).dump() << "\n";
  out.close();
  std::printf("%s: %d requests, %d at a time, %d tokens each, %d compute threads; output tokens/s\n",
              name_of(setup.model).c_str(), setup.requests, kConcurrency, setup.tokens, setup.threads);
  std::printf("%-14s %10s %10s %10s\n", "", "engine", "server", "overhead");
  compare(setup, "base", {""}, file.string());
  std::vector<std::string> names;
  for (const std::string& dir : setup.adapters) names.push_back(name_of(dir));
  if (!names.empty()) {
    compare(setup, "one adapter", {names.front()}, file.string());
    names.emplace_back("");
    compare(setup, "all mixed", names, file.string());
  }
  std::filesystem::remove(file);
  return 0;
}

}  // namespace
}  // namespace cadre

int main(int argc, char** argv) {
  cadre::Setup setup;
  const std::map<std::string, int*> numbers = {{"--threads", &setup.threads},
                                               {"--requests", &setup.requests},
                                               {"--tokens", &setup.tokens},
                                               {"--runs", &setup.runs}};
  for (int i = 1; i < argc; ++i) {
    if (const auto number = numbers.find(argv[i]); number != numbers.end() && i + 1 < argc) {
      *number->second = std::max(1, std::atoi(argv[++i]));
    } else if (std::strncmp(argv[i], "--", 2) == 0) {
      std::fprintf(stderr, "serve_bench: unknown flag %s\n", argv[i]);
      return 2;
    } else if (setup.model.empty()) {
      setup.model = argv[i];
    } else {
      setup.adapters.emplace_back(argv[i]);
    }
  }
  if (setup.model.empty()) {
    std::fprintf(stderr, "usage: %s MODEL_DIR [ADAPTER_DIR ...] [--threads N] [--requests N] [--tokens N] [--runs N]\n",
                 argv[0]);
    return 2;
  }
  return cadre::run(setup);
}
