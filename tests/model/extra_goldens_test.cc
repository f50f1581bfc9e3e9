// The adapters of tests/data/extra: files of PEFT 0.18 and older, and settings of PEFT that the goldens do not have.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "model/golden.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

// What is refused, and whether there is a way to read it.
const std::set<std::string> kRefused = {"dora", "gate_up_old"};

struct Extra {
  std::string base;
  std::filesystem::path model, adapters;
};

// One for each folder of adapters: of the goldens' models, and of the model that lies beside its adapters.
std::vector<Extra> extras() {
  std::vector<Extra> all;
  for (const std::string& base : folder_names(extra_dir())) {
    if (!std::filesystem::is_directory(golden_dir(base))) continue;  // layouts, models and the like
    all.push_back({base, golden_dir(base), extra_dir() / base});
  }
  return all;
}

struct Opened {
  GoldenSetup setup;
  std::vector<std::vector<GoldenCase>> answers;  // by slot
};

Opened readable_adapters(const Extra& extra) {
  Opened out;
  out.setup.model_dir = extra.model;
  for (const std::string& name : folder_names(extra.adapters)) {
    if (kRefused.contains(name)) continue;
    out.setup.adapters.push_back({name, extra.adapters / name});
    out.answers.push_back(read_golden(extra.adapters / name / "golden.safetensors"));
  }
  return out;
}

// The base and every adapter, the same prompt of each, in one batch.
void expect_mixed(GoldenModel& model, const Opened& opened, const std::vector<GoldenCase>& base) {
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<const std::vector<float>*> wanted = {&base[i].logits};
    for (const auto& cases : opened.answers) wanted.push_back(&cases[i].logits);
    std::vector<SequenceState> states(wanted.size());
    std::vector<RunItem> items;
    for (std::size_t k = 0; k < wanted.size(); ++k) {  // twelve rows of each, within what a batch holds
      ASSERT_TRUE(model.runner->pool().reserve(states[k], static_cast<std::int64_t>(base[i].ids.size())));
      items.push_back({.state = &states[k],
                       .ids = std::span(base[i].ids).first(std::min<std::size_t>(base[i].ids.size(), 12)),
                       .slot = static_cast<std::int32_t>(k) - 1,
                       .all_logits = true});
    }
    const std::span<float> all = model.runner->run(items);
    std::size_t at = 0;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const std::size_t count = items[k].ids.size() * static_cast<std::size_t>(model.vocab);
      EXPECT_LE(relative_error(all.subspan(at, count), std::span(*wanted[k]).first(count)), kGoldenBound)
          << "slot " << items[k].slot << ", prompt " << i;
      at += count;
      model.runner->pool().release(states[k]);
    }
  }
}

class ExtraGoldens : public testing::TestWithParam<Extra> {};

TEST_P(ExtraGoldens, EveryReadableAdapter) {
  const Opened opened = readable_adapters(GetParam());
  ASSERT_FALSE(opened.answers.empty());
  auto model = open_golden(opened.setup);
  ASSERT_THAT(model, Succeeds());
  const auto base = read_golden(GetParam().model / "golden.safetensors");
  for (std::size_t i = 0; i < opened.answers.size(); ++i) {
    SCOPED_TRACE(opened.setup.adapters[i].name);
    expect_golden(*model, static_cast<std::int32_t>(i), opened.answers[i]);
    // A golden that equals the base's would be met without the adapter.
    EXPECT_GT(relative_error(opened.answers[i][0].logits, base[0].logits), 1e-2);
  }
  expect_mixed(*model, opened, base);
}

TEST_P(ExtraGoldens, OnTheTestDevice) {
  Opened opened = readable_adapters(GetParam());
  const auto device = make_test_device(std::size_t{64} << 20);
  ASSERT_THAT(device, Succeeds());
  opened.setup.device = *device;
  auto model = open_golden(opened.setup);
  ASSERT_THAT(model, Succeeds());
  expect_mixed(*model, opened, read_golden(GetParam().model / "golden.safetensors"));
}

// Swapped files are cut for ranks along other dimensions than today's.
TEST_P(ExtraGoldens, OnTwoRanks) {
  if (GetParam().base == "olmoe") return;  // its norm spans all heads, so it runs on one rank
  for (const bool expert_parallel : {false, true}) {
    const auto communicators = make_in_process_communicators(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Opened opened = readable_adapters(GetParam());
        opened.setup.ranks = {.rank = rank, .size = 2, .expert_parallel = expert_parallel};
        opened.setup.communicator = communicators[static_cast<std::size_t>(rank)].get();
        opened.setup.threads = 1;
        auto model = open_golden(opened.setup);
        ASSERT_THAT(model, Succeeds());
        expect_mixed(*model, opened, read_golden(GetParam().model / "golden.safetensors"));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Bases, ExtraGoldens, testing::ValuesIn(extras()),
                         [](const testing::TestParamInfo<Extra>& test) { return test.param.base; });

TEST(ExtraGoldens, CoversWhatIsThere) {
  std::size_t adapters = 0;
  for (const Extra& extra : extras()) adapters += folder_names(extra.adapters).size();
  EXPECT_EQ(extras().size(), 4u);
  EXPECT_EQ(adapters, 16u);
}

// ---- what the shapes leave open ---------------------------------------------------------------------------------

Result<GoldenModel> open_one(const std::filesystem::path& model, const std::filesystem::path& adapter,
                             const AdapterOptions& options = {}) {
  return open_golden({.model_dir = model, .adapters = {{"one", adapter, options}}});
}

TEST(Orientation, SquareAloneIsRefusedWithoutTheOption) {
  const auto folder = extra_dir() / "olmoe/gate_up_old";
  const auto refused = open_one(golden_dir("olmoe"), folder);
  EXPECT_THAT(refused, FailsWith(Code::kInvalidFile, "orientation=swapped"));
  EXPECT_THAT(refused, FailsWith(Code::kInvalidFile, "orientation=peft"));
  EXPECT_THAT(refused, FailsWith(Code::kInvalidFile, "adapter_model.safetensors"));
}

TEST(Orientation, SquareAloneIsRightWithTheOption) {
  const auto folder = extra_dir() / "olmoe/gate_up_old";
  const auto options = parse_adapter_options("orientation=swapped");
  ASSERT_THAT(options, Succeeds());
  auto model = open_one(golden_dir("olmoe"), folder, *options);
  ASSERT_THAT(model, Succeeds());
  expect_golden(*model, 0, read_golden(folder / "golden.safetensors"));

  // Read the other way it fits as well and is wrong: why nothing may be guessed.
  auto wrong = open_one(golden_dir("olmoe"), folder, {.orientation = Orientation::kPeft});
  ASSERT_THAT(wrong, Succeeds());
  const GoldenCase first = read_golden(folder / "golden.safetensors")[0];
  EXPECT_GT(relative_error(wrong->logits(first.ids, 0, {256}), first.logits), 0.1);
}

// An option that contradicts the shapes is refused, not obeyed.
TEST(Orientation, OptionAgainstTheShapes) {
  EXPECT_FALSE(
      open_one(golden_dir("qwen3_moe"), extra_dir() / "qwen3_moe/experts_old", {.orientation = Orientation::kPeft})
          .ok());
  EXPECT_FALSE(open_one(golden_dir("qwen3_moe"), golden_dir("qwen3_moe") / "adapters/experts",
                        {.orientation = Orientation::kSwapped})
                   .ok());
}

// ---- what is not supported --------------------------------------------------------------------------------------

TEST(Unsupported, Dora) {
  const auto refused = open_one(golden_dir("qwen3_moe"), extra_dir() / "qwen3_moe/dora");
  EXPECT_THAT(refused, FailsWith(Code::kUnsupported, "DoRA"));
  EXPECT_THAT(refused, FailsWith(Code::kUnsupported, "merge the adapter"));
}

TEST(Unsupported, Biases) {
  const auto model = extra_dir() / "models/qwen3_moe_bias";
  EXPECT_THAT(open_one(model, model / "adapters/bias_lora_only"), FailsWith(Code::kUnsupported, "bias"));
  EXPECT_THAT(open_one(model, model / "adapters/bias_lora_only"), FailsWith(Code::kUnsupported, "merge the adapter"));
  EXPECT_THAT(open_one(model, model / "adapters/lora_bias"), FailsWith(Code::kUnsupported, "'lora_bias' is set"));
  EXPECT_THAT(open_one(model, model / "adapters/lora_bias"), FailsWith(Code::kUnsupported, "or merge it"));
}

// ---- attention_bias ---------------------------------------------------------------------------------------------

TEST(AttentionBias, BaseAndAdapter) {
  const auto dir = extra_dir() / "models/qwen3_moe_bias";
  auto model = open_one(dir, dir / "adapters/attn");
  ASSERT_THAT(model, Succeeds());
  const auto base = read_golden(dir / "golden.safetensors"),
             attn = read_golden(dir / "adapters/attn/golden.safetensors");
  expect_golden(*model, -1, base);
  expect_golden(*model, 0, attn);
  EXPECT_EQ(model->logits(base[2].ids, 0, {256}), model->logits(base[2].ids, 0, {5, 1, 17, 2}));
}

// A sum over ranks adds the bias of o_proj once.
TEST(AttentionBias, OnTwoRanks) {
  const auto dir = extra_dir() / "models/qwen3_moe_bias";
  const auto communicators = make_in_process_communicators(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto model = open_golden({.model_dir = dir,
                                .adapters = {{"attn", dir / "adapters/attn"}},
                                .ranks = {.rank = rank, .size = 2},
                                .communicator = communicators[static_cast<std::size_t>(rank)].get(),
                                .threads = 1});
      ASSERT_THAT(model, Succeeds());
      expect_golden(*model, -1, read_golden(dir / "golden.safetensors"));
      expect_golden(*model, 0, read_golden(dir / "adapters/attn/golden.safetensors"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cadre::test
