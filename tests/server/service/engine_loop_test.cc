#include "server/service/engine_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace cadre::server {
namespace {

std::unique_ptr<Engine> open_engine() {
  EngineOptions options;
  options.model_dir = std::string(CADRE_SOURCE) + "/examples/models/qwen3_moe";
  options.rehearse = Rehearse::kOff;
  auto engine = Engine::open(std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

Request ask(int max_tokens, std::vector<std::int32_t> ids = {5, 6, 7}) {
  Request request;
  request.prompt_ids = std::move(ids);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

struct Recorder final : EventSink {
  void accepted(const std::vector<std::uint64_t>& given) override { ids.set_value(given); }
  void refused(const Status& status) override {
    why = status;
    done.set_value();
  }
  bool event(std::size_t index, const Event& event) override {
    if (event.token) ++tokens[index];
    if (event.finish != FinishReason::kNone) {
      finish[index] = event.finish;
      if (++ended == static_cast<int>(tokens.size())) done.set_value();
    }
    return ++events != leave_after;
  }
  explicit Recorder(std::size_t members) : tokens(members), finish(members) {}

  std::promise<std::vector<std::uint64_t>> ids;
  std::promise<void> done;
  std::vector<int> tokens;
  std::vector<FinishReason> finish;
  Status why;
  int ended = 0, events = 0, leave_after = -1;
};

bool idle(EngineLoop& loop) {
  return loop.call([](Engine& engine) { return engine.stats().running + engine.stats().waiting == 0; });
}

TEST(EngineLoop, GroupsComeBackWhole) {
  EngineLoop loop(open_engine());
  const auto sink = std::make_shared<Recorder>(3);
  loop.submit({ask(4), ask(6), ask(1)}, sink);
  sink->done.get_future().wait();
  EXPECT_EQ(sink->ids.get_future().get().size(), 3u);
  EXPECT_EQ(sink->tokens, (std::vector<int>{4, 6, 1}));
  EXPECT_EQ(sink->finish[1], FinishReason::kLength);
}

TEST(EngineLoop, OneThatCannotRunRefusesTheGroup) {
  EngineLoop loop(open_engine());
  const auto sink = std::make_shared<Recorder>(2);
  loop.submit({ask(100), ask(4, {1'000'000})}, sink);
  sink->done.get_future().wait();
  EXPECT_EQ(sink->why.code(), Code::kInvalidArgument);
  while (!idle(loop)) {
  }
  EXPECT_EQ(sink->events, 0) << "nothing is heard of the other";
}

TEST(EngineLoop, CancelAndLossOfInterestFreeEverything) {
  EngineLoop loop(open_engine());
  const auto cancelled = std::make_shared<Recorder>(2), bored = std::make_shared<Recorder>(2);
  bored->leave_after = 3;
  loop.submit({ask(400), ask(400)}, cancelled);
  loop.submit({ask(400), ask(400)}, bored);
  loop.cancel(cancelled->ids.get_future().get());
  while (!idle(loop)) {
  }
  loop.stop();
  EXPECT_LT(cancelled->tokens[0], 400);
  EXPECT_EQ(bored->events, 3);
  EXPECT_EQ(loop.engine().adapters().size(), 0u);
}

TEST(EngineLoop, CallsRunBetweenSteps) {
  EngineLoop loop(open_engine());
  const auto sink = std::make_shared<Recorder>(1);
  loop.submit({ask(300)}, sink);
  int seen = 0;
  for (int i = 0; i < 50; ++i) seen += loop.call([](Engine& engine) { return engine.stats().running; });
  EXPECT_GT(seen, 0);
  sink->done.get_future().wait();
}

}  // namespace
}  // namespace cadre::server
