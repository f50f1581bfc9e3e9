// Adapters on disk are read again while batches go on. A scheduler without an engine, so that reading takes as long as
// the test wants.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "engine/plan.h"
#include "engine/scheduler.h"
#include "engine/serving.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

// Reads when it is told to.
struct SlowDisk {
  void go() {
    if (!std::exchange(told, true)) promise.set_value();
  }
  std::promise<void> promise;
  std::shared_future<void> gone = promise.get_future().share();
  bool told = false;
  std::atomic<int> begun = 0;
  std::atomic<bool> fails = false;
};

// One slot, one adapter in memory: `attn` in both, `experts` on disk.
class AdapterLoading : public ::testing::Test {
 protected:
  void SetUp() override { open({"attn", "experts"}, 1); }

  void TearDown() override { disk_.go(); }

  void open(const std::vector<std::string>& names, int in_memory) {
    EngineOptions options = options_for("qwen3_moe", names);
    options.max_loras = 1;
    options.max_cpu_loras = in_memory;
    ModelOptions model_options;
    model_options.dir = options.model_dir;
    model_options.device = make_cpu_device();
    model_options.caps = this_device();
    auto model = Model::load(std::move(model_options));
    ASSERT_THAT(model.status(), Succeeds());
    SelectOptions select;
    select.base.max_tokens = 64;
    adapters_ = std::make_unique<AdapterSet>(options, make_moe_gate({}), select);
    ASSERT_THAT(adapters_->prepare(**model, options.adapters), Succeeds());
    RunnerLimits limits;
    limits.max_tokens = 64;
    limits.pages = 150;
    auto runner = Runner::make(std::move(*model), limits, nullptr);
    ASSERT_THAT(runner.status(), Succeeds());
    runner_ = std::move(*runner);
    ASSERT_THAT(adapters_->attach(*runner_), Succeeds());
    loader_ = std::make_unique<AdapterLoader>([this](const AdapterSource& source) {
      ++disk_.begun;
      disk_.gone.wait();
      if (disk_.fails) throw std::bad_alloc();
      return adapters_->read(runner_->model(), source);
    });
    SchedulerOptions scheduling;
    scheduling.max_tokens = 64;
    scheduler_ = std::make_unique<Scheduler>(scheduling, *runner_, *adapters_, *loader_);
  }

  std::uint64_t add(const std::string& adapter, int max_tokens) {
    Sequence::Ask ask;
    ask.id = next_id_++;
    ask.prompt = prompt(20, static_cast<int>(ask.id));
    ask.capacity = 20 + max_tokens;
    ask.params.ignore_eos = true;
    ask.adapter = adapters_->find(adapter).value();
    const std::uint64_t id = ask.id;
    scheduler_->add(std::make_unique<Sequence>(std::move(ask), nullptr));
    return id;
  }

  // As Engine::step.
  void step() {
    const auto end = [&](Scheduler::Failure failure) {
      ended_[failure.sequence->id()] = failure.why;
      scheduler_->finish(failure.sequence);
    };
    for (Scheduler::Failure& failure : scheduler_->ended()) end(std::move(failure));
    const std::vector<Scheduler::Part> parts = scheduler_->plan();
    for (Scheduler::Failure& failure : scheduler_->broken()) end(std::move(failure));
    std::vector<RunItem> items;
    for (const Scheduler::Part& part : parts) {
      Sequence& s = *part.sequence;
      items.push_back({.state = &s.state,
                       .ids = s.unseen().subspan(0, static_cast<std::size_t>(part.rows)),
                       .slot = s.slot(),
                       .no_logits = part.logit_rows() == 0});
    }
    if (items.empty()) return;
    const std::span<float> logits = runner_->run(items);
    scheduler_->ran(parts);
    const std::size_t vocab = static_cast<std::size_t>(runner_->model().config().vocab);
    std::size_t row = 0;
    for (const Scheduler::Part& part : parts) {
      if (!part.draws) continue;
      const std::uint64_t id = part.sequence->id();
      ++tokens_[id];
      if (part.sequence->advance(logits.subspan(row++ * vocab, vocab)).finish == FinishReason::kNone) continue;
      ended_[id] = {};
      scheduler_->finish(part.sequence);
    }
    scheduler_->collect_adapters();
  }

  // Until `id` has ended; false where it never does.
  bool finish(std::uint64_t id) {
    for (int i = 0; i < 2000 && !ended_.contains(id); ++i) {
      step();
      loader_->wait(std::chrono::milliseconds(10));
    }
    return ended_.contains(id);
  }

  bool on_disk(const std::string& name) { return adapters_->on_disk(adapters_->find(name).value()); }

  SlowDisk disk_;
  std::unique_ptr<AdapterSet> adapters_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<AdapterLoader> loader_;
  std::unique_ptr<Scheduler> scheduler_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, int> tokens_;
  std::map<std::uint64_t, Status> ended_;
};

TEST_F(AdapterLoading, OthersGoOnWhileOneIsRead) {
  ASSERT_TRUE(on_disk("experts"));
  const std::uint64_t base = add("", 30), slow = add("experts", 3);
  for (int i = 0; i < 12; ++i) step();
  EXPECT_EQ(tokens_[base], 12) << "each step brings a token";
  EXPECT_EQ(tokens_[slow], 0);
  EXPECT_TRUE(loader_->busy());
  // What comes later goes on too, also with the adapter whose slot the slow one will take.
  const std::uint64_t later = add("attn", 5);
  for (int i = 0; i < 6; ++i) step();
  EXPECT_EQ(tokens_[later], 5);
  EXPECT_TRUE(on_disk("experts"));
  disk_.go();
  ASSERT_TRUE(finish(slow));
  EXPECT_THAT(ended_[slow], Succeeds());
  EXPECT_EQ(tokens_[slow], 3);
  EXPECT_FALSE(on_disk("experts"));
  EXPECT_TRUE(on_disk("attn")) << "memory for one";
  EXPECT_EQ(disk_.begun, 1) << "read once";
  ASSERT_TRUE(finish(base));
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(AdapterLoading, AFailureEndsThoseThatWaitForItAndNobodyElse) {
  disk_.fails = true;
  const std::uint64_t base = add("", 30), one = add("experts", 3), two = add("experts", 3);
  step();
  EXPECT_TRUE(ended_.empty());
  disk_.go();
  ASSERT_TRUE(finish(one));
  ASSERT_TRUE(finish(two));
  EXPECT_THAT(ended_[one], FailsWith(Code::kConflict, "put it back, or load it again"));
  EXPECT_THAT(ended_[two], FailsWith(Code::kConflict, "adapter 'experts' cannot be read"));
  EXPECT_EQ(disk_.begun, 1) << "one failure for both";
  EXPECT_LT(tokens_[base], 30);
  // The next request tries again.
  disk_.fails = false;
  const std::uint64_t again = add("experts", 3);
  ASSERT_TRUE(finish(again));
  EXPECT_THAT(ended_[again], Succeeds());
  ASSERT_TRUE(finish(base));
  EXPECT_EQ(tokens_[base], 30);
}

// It is cancelled while its adapter is read, and the set goes away while one is.
TEST_F(AdapterLoading, WhoWaitsMayGo) {
  const std::uint64_t slow = add("experts", 3);
  step();
  ASSERT_TRUE(loader_->busy());
  ASSERT_TRUE(scheduler_->cancel(slow));
  step();
  EXPECT_TRUE(ended_.contains(slow));
  EXPECT_TRUE(scheduler_->idle());
  disk_.go();
  const std::uint64_t base = add("", 2);
  ASSERT_TRUE(finish(base));
}

// Memory for one, and the slot held by a flow far ahead: it keeps the slot until the other can have it.
TEST_F(AdapterLoading, NobodyGivesWayForOneThatIsNotRead) {
  std::vector<std::uint64_t> ahead;
  for (int i = 0; i < 8; ++i) ahead.push_back(add("attn", 200));
  step();
  const std::uint64_t slow = add("experts", 3);
  const auto preemptions = [&] {
    EngineStats stats;
    scheduler_->add_to(&stats);
    return stats.preemptions;
  };
  for (int i = 0; i < 160; ++i) step();
  EXPECT_TRUE(loader_->busy()) << "its turn has come";
  EXPECT_EQ(preemptions(), 0);
  EXPECT_GT(tokens_[ahead[0]], 150) << "the others go on";
  disk_.go();
  ASSERT_TRUE(finish(slow));
  EXPECT_THAT(ended_[slow], Succeeds());
  EXPECT_EQ(preemptions(), 8) << "all of the adapter, once";
  EXPECT_FALSE(ended_.contains(ahead[0]));
  for (const std::uint64_t id : ahead) {
    ASSERT_TRUE(finish(id));
    EXPECT_EQ(tokens_[id], 200);
  }
}

class AdapterLoadingWithMemory : public AdapterLoading {
 protected:
  void SetUp() override { open({"attn", "experts", "per_expert"}, 2); }
};

// Somebody else holds the slot: the one that waits for it is in memory by the time it gets it.
TEST_F(AdapterLoadingWithMemory, TheNeediestIsReadWhileItWaitsForASlot) {
  ASSERT_FALSE(on_disk("per_expert"));
  ASSERT_TRUE(on_disk("experts"));
  const std::uint64_t holder = add("attn", 30);
  step();
  const std::uint64_t slow = add("experts", 3);
  step();
  EXPECT_TRUE(loader_->busy());
  disk_.go();
  loader_->wait(std::chrono::seconds(60));
  step();
  EXPECT_FALSE(on_disk("experts"));
  EXPECT_TRUE(on_disk("per_expert")) << "which nobody wants";
  EXPECT_FALSE(ended_.contains(holder));
  EXPECT_EQ(tokens_[slow], 0) << "the slot is still taken";
  ASSERT_TRUE(finish(slow));
  EXPECT_TRUE(ended_.contains(holder));
}

}  // namespace
}  // namespace cadre::test
