// Every golden of the families this build covers, base and adapters: logits within 1e-4 and greedy tokens equal; whole,
// step by step, in uneven pieces, all mixed in one batch, on the test device, and on two ranks.
#include <gtest/gtest.h>

#include <thread>

#include "model/golden.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

constexpr double kBound = kGoldenBound;

struct Answers {
  std::string name;  // "base" or the adapter's
  std::int32_t slot = -1;
  std::vector<GoldenCase> cases;
};

std::vector<Answers> read_answers(const std::string& model) {
  std::vector<Answers> all = {{"base", -1, read_golden(golden_dir(model) / "golden.safetensors")}};
  std::int32_t slot = 0;
  for (const std::string& adapter : golden_adapters(model)) {
    all.push_back({adapter, slot++, read_golden(golden_dir(model) / "adapters" / adapter / "golden.safetensors")});
  }
  return all;
}

GoldenSetup setup_of(const std::string& model) {
  GoldenSetup setup;
  setup.model_dir = golden_dir(model);
  for (const std::string& adapter : golden_adapters(model)) {
    setup.adapters.emplace_back(adapter, golden_dir(model) / "adapters" / adapter);
  }
  return setup;
}

void check_whole(GoldenModel& golden, const std::vector<Answers>& answers) {
  for (const Answers& a : answers) {
    for (std::size_t i = 0; i < a.cases.size(); ++i) {
      SCOPED_TRACE(a.name + ", prompt " + std::to_string(i));
      EXPECT_LE(relative_error(golden.logits(a.cases[i].ids, a.slot, {256}), a.cases[i].logits), kBound);
    }
  }
}

void check_greedy(GoldenModel& golden, const std::vector<Answers>& answers, bool whole) {
  for (const Answers& a : answers) {
    for (std::size_t i = 0; i < a.cases.size(); ++i) {
      SCOPED_TRACE(a.name + ", prompt " + std::to_string(i));
      EXPECT_EQ(golden.greedy(a.cases[i].ids, a.slot, a.cases[i].greedy.size(), whole), a.cases[i].greedy);
    }
  }
}

// Base and all adapters, all prompts, in one batch.
void check_mixed(GoldenModel& golden, const std::vector<Answers>& answers) {
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<SequenceState> states(answers.size());
    std::vector<RunItem> items;
    for (std::size_t k = 0; k < answers.size(); ++k) {
      const Ids& ids = answers[k].cases[i].ids;
      ASSERT_TRUE(golden.runner->pool().reserve(states[k], static_cast<std::int64_t>(ids.size())));
      items.push_back({.state = &states[k], .ids = ids, .slot = answers[k].slot, .all_logits = true});
    }
    const std::span<float> all = golden.runner->run(items);
    std::size_t at = 0;
    for (std::size_t k = 0; k < answers.size(); ++k) {
      const std::vector<float>& want = answers[k].cases[i].logits;
      ASSERT_LE(at + want.size(), all.size());
      EXPECT_LE(relative_error(all.subspan(at, want.size()), want), kBound) << answers[k].name << ", prompt " << i;
      at += want.size();
    }
    for (SequenceState& state : states) golden.runner->pool().release(state);
  }
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, EveryWayToFeedIt) {
  const std::vector<Answers> answers = read_answers(GetParam());
  auto golden = open_golden(setup_of(GetParam()));
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const std::int64_t pages = golden->runner->pool().free_pages();
  check_whole(*golden, answers);
  check_greedy(*golden, answers, depends_on_length(GetParam()));
  check_mixed(*golden, answers);
  if (!depends_on_length(GetParam())) {
    for (const Answers& a : answers) {
      const GoldenCase& c = a.cases[2];
      EXPECT_LE(relative_error(golden->logits(c.ids, a.slot, {1}), c.logits), kBound) << a.name << ", step by step";
      EXPECT_LE(relative_error(golden->logits(c.ids, a.slot, {5, 1, 17, 2}), c.logits), kBound) << a.name << ", uneven";
    }
  }
  EXPECT_EQ(golden->runner->pool().free_pages(), pages);
}

// Promise (c): a row's bits do not depend on how its prompt was cut. Promise (b): nor on adapters of other rows.
TEST_P(Golden, BitsDoNotDependOnTheBatch) {
  auto golden = open_golden(setup_of(GetParam()));
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const std::vector<Answers> answers = read_answers(GetParam());
  const Ids& ids = answers[0].cases[2].ids;
  const std::int64_t length = static_cast<std::int64_t>(ids.size());
  for (const Answers& a : answers) {
    const std::vector<float> whole = golden->logits(ids, a.slot, {256}, length);
    EXPECT_EQ(whole, golden->logits(ids, a.slot, {5, 1, 17, 2}, length)) << a.name;
    EXPECT_EQ(whole, golden->logits(ids, a.slot, {1}, length)) << a.name;
  }
  auto base_only = open_golden({.model_dir = golden_dir(GetParam()), .threads = 1});
  ASSERT_TRUE(base_only.ok()) << base_only.status().message();
  EXPECT_EQ(golden->logits(ids, -1, {256}), base_only->logits(ids, -1, {256}));
}

TEST_P(Golden, OnTheTestDevice) {
  auto device = make_test_device(std::size_t{1} << 30);
  ASSERT_TRUE(device.ok()) << device.status().message();
  GoldenSetup setup = setup_of(GetParam());
  setup.device = *device;
  auto golden = open_golden(setup);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const std::vector<Answers> answers = read_answers(GetParam());
  check_whole(*golden, answers);
  check_mixed(*golden, answers);
  if (!depends_on_length(GetParam())) check_greedy(*golden, {answers.front(), answers.back()}, false);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(golden_models()),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

TEST(Golden, CoversTheFoldersOfTheFamilies) { EXPECT_EQ(golden_models().size(), 34u); }

// Two ranks in this process, each on its own thread; every rank must give the whole model's logits. Both are open
// before either runs: one that ran alone would wait for the other for ever.
void check_two_ranks(const std::string& model, bool expert_parallel) {
  const std::vector<Answers> answers = read_answers(model);
  const auto communicators = make_in_process_communicators(2);
  std::vector<GoldenModel> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    GoldenSetup setup = setup_of(model);
    setup.ranks = {.rank = rank, .size = 2, .expert_parallel = expert_parallel};
    setup.communicator = communicators[static_cast<std::size_t>(rank)].get();
    setup.threads = 1;
    auto golden = open_golden(setup);
    ASSERT_TRUE(golden.ok()) << "rank " << rank << ": " << golden.status().message();
    ranks.push_back(std::move(golden).value());
  }
  std::vector<std::thread> threads;
  for (GoldenModel& golden : ranks) {
    threads.emplace_back([&] {
      check_whole(golden, answers);
      check_mixed(golden, answers);
      check_greedy(golden, answers, false);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TwoRanks, DeepseekV3TensorParallel) { check_two_ranks("deepseek_v3", false); }
TEST(TwoRanks, DeepseekV3ExpertParallel) { check_two_ranks("deepseek_v3", true); }
TEST(TwoRanks, GptOssTensorParallel) { check_two_ranks("gpt_oss", false); }
TEST(TwoRanks, GptOssExpertParallel) { check_two_ranks("gpt_oss", true); }
// Shared experts of one projection for gate and up; Mamba layers that every rank computes whole.
TEST(TwoRanks, GraniteHybridTensorParallel) { check_two_ranks("granitemoehybrid", false); }
TEST(TwoRanks, GraniteHybridExpertParallel) { check_two_ranks("granitemoehybrid", true); }
TEST(TwoRanks, PhimoeTensorParallel) { check_two_ranks("phimoe", false); }
TEST(TwoRanks, Qwen3MoeTensorParallel) { check_two_ranks("qwen3_moe", false); }
TEST(TwoRanks, Qwen3MoeExpertParallel) { check_two_ranks("qwen3_moe", true); }
TEST(TwoRanks, NemotronHTensorParallel) { check_two_ranks("nemotron_h", false); }
TEST(TwoRanks, NemotronHExpertParallel) { check_two_ranks("nemotron_h", true); }
TEST(TwoRanks, Qwen3NextTensorParallel) { check_two_ranks("qwen3_next", false); }
TEST(TwoRanks, Qwen3NextExpertParallel) { check_two_ranks("qwen3_next", true); }
TEST(TwoRanks, Qwen35MoeTensorParallel) { check_two_ranks("qwen3_5_moe_text", false); }
TEST(TwoRanks, Lfm2MoeTensorParallel) { check_two_ranks("lfm2_moe", false); }
TEST(TwoRanks, Llama4TensorParallel) { check_two_ranks("llama4_text", false); }
TEST(TwoRanks, Llama4ExpertParallel) { check_two_ranks("llama4_text", true); }
TEST(TwoRanks, Gemma4TensorParallel) { check_two_ranks("gemma4_text", false); }
TEST(TwoRanks, Gemma4ExpertParallel) { check_two_ranks("gemma4_text", true); }

}  // namespace
}  // namespace cadre::test
