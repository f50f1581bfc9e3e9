// Requests through an engine on a golden model, and what came of them.
#pragma once

#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <map>

namespace cadre::test {

inline std::string golden(const std::string& path) { return std::string(CADRE_GOLDENS) + "/models/" + path; }

inline EngineOptions options_for(const std::string& model, const std::vector<std::string>& adapters = {}) {
  EngineOptions options;
  options.model_dir = golden(model);
  for (const std::string& name : adapters) {
    options.adapters.push_back({.name = name, .dir = golden(model + "/adapters/" + name)});
  }
  options.need_tokenizer = false;
  options.rehearse = Rehearse::kOff;
  return options;
}

inline std::unique_ptr<Engine> open(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

inline std::vector<std::int32_t> prompt(int length, int seed = 1) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < length; ++i) ids.push_back(3 + (i * 37 + seed * 11) % 300);
  return ids;
}

inline Request ask(std::vector<std::int32_t> ids, const std::string& adapter = "", int max_tokens = 8) {
  Request request;
  request.prompt_ids = std::move(ids);
  request.adapter = adapter;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

struct Answer {
  std::vector<std::int32_t> ids;
  FinishReason finish = FinishReason::kNone;
  Status error;
  std::int64_t cached = 0;
  int first_step = -1, last_step = -1;  // counted from the first call of run
  std::vector<std::vector<TokenChance>> prompt_logprobs;
};
using Answers = std::map<std::uint64_t, Answer>;

inline void step(Engine& engine, Answers* answers, int number = 0) {
  const auto events = engine.step();
  ASSERT_TRUE(events.ok()) << events.status().message();
  for (const Event& event : *events) {
    Answer& answer = (*answers)[event.request];
    if (event.token) {
      if (answer.ids.empty()) {
        answer.first_step = number;
        answer.cached = event.cached_tokens;
        answer.prompt_logprobs = event.prompt_logprobs;
      }
      answer.ids.push_back(*event.token);
    }
    if (event.finish != FinishReason::kNone) {
      EXPECT_EQ(answer.finish, FinishReason::kNone) << "an answer ends once";
      answer.finish = event.finish;
      answer.error = event.error;
      answer.last_step = number;
    }
  }
}

inline Answers run(Engine& engine) {
  Answers answers;
  for (int number = 0; !engine.idle(); ++number) step(engine, &answers, number);
  return answers;
}

inline std::uint64_t submit(Engine& engine, const Request& request) {
  const auto id = engine.submit(request);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : 0;
}

inline Answer one(Engine& engine, const Request& request) {
  const std::uint64_t id = submit(engine, request);
  return run(engine)[id];
}

inline void expect_all_returned(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pages_in_use, 0);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
}

}  // namespace cadre::test
