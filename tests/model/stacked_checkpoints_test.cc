// The goldens as transformers 5 saves them with save_original_format=False: experts stacked and under its own names.
// Bits of the logits must not change, of the base and of every adapter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <thread>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

void to_version_5(ModelFiles& files) {
  const std::string type = files.config.get_string("model_type").value();
  if (type.starts_with("granite")) {
    rename_tensors(files, "block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj");
    rename_tensors(files, "block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj");
    rename_tensors(files, "block_sparse_moe.router.layer.weight", "block_sparse_moe.router.weight");
    return;
  }
  rename_tensors(files, ".block_sparse_moe.", ".mlp.");
  if (type == "nemotron_h") {
    rename_tensors(files, "backbone.", "model.");
    return stack_experts(files, {"up_proj"}, "down_proj", "up_proj");
  }
  if (type == "phimoe") rename_tensors(files, ".gate.weight", ".router.weight");
  if (type == "ernie4_5_moe") rename_tensors(files, ".mlp.moe_statics.", ".mlp.gate.moe_statics.");
  if (type == "mixtral" || type == "minimax_m2" || type == "phimoe" || type == "lfm2_moe") {
    return stack_experts(files, {"w1", "w3"}, "w2", "gate_up_proj");
  }
  stack_experts(files, {"gate_proj", "up_proj"}, "down_proj", "gate_up_proj");
}

// What transformers did, by golden.
const Json& recorded() {
  static const Json kNames = Json::parse_file((extra_dir() / "layouts/stacked_names.json").string()).value();
  return kNames;
}

std::vector<std::string> goldens() {
  std::vector<std::string> names;
  for (const auto& [name, change] : recorded().members()) names.push_back(name);
  return names;
}

// Names that `files` has and `other` lacks, each number written as N.
std::vector<std::string> patterns(const ModelFiles& files, const ModelFiles& other) {
  std::set<std::string> out;
  for (const auto& [name, tensor] : files.tensors) {
    if (other.tensors.contains(name)) continue;
    std::string pattern;
    std::size_t at = 0;
    while (at < name.size()) {
      const std::size_t dot = std::min(name.find('.', at), name.size());
      const std::string part = name.substr(at, dot - at);
      const bool number = std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
      pattern += (pattern.empty() ? "" : ".") + (number ? "N" : part);
      at = dot + 1;
    }
    out.insert(pattern);
  }
  return {out.begin(), out.end()};
}

class StackedCheckpoint : public testing::TestWithParam<std::string> {
 protected:
  std::vector<std::vector<float>> logits(const std::filesystem::path& dir, bool test_device = false) const {
    GoldenSetup setup;
    setup.model_dir = dir;
    for (const std::string& name : golden_adapters(GetParam())) {
      setup.adapters.emplace_back(name, golden_dir(GetParam()) / "adapters" / name);
    }
    if (test_device) setup.device = make_test_device(std::size_t{64} << 20).value();
    auto model = open_golden(setup);
    EXPECT_THAT(model, Succeeds());
    if (!model.ok()) return {};
    const Ids ids = read_golden(golden_dir(GetParam()) / "golden.safetensors")[2].ids;
    std::vector<std::vector<float>> out;
    for (std::int32_t slot = -1; slot < static_cast<std::int32_t>(setup.adapters.size()); ++slot) {
      out.push_back(model->logits(ids, slot, {256}));
    }
    return out;
  }
};

TEST_P(StackedCheckpoint, SameBits) {
  const ModelFiles own = ModelFiles::read(golden_dir(GetParam()));
  ModelFiles files = own;
  to_version_5(files);
  const Json change = recorded().get_object(GetParam()).value();
  EXPECT_EQ(patterns(files, own), change.get_string_list("new").value());
  EXPECT_EQ(patterns(own, files), change.get_string_list("gone").value());

  const TempDir dir;
  files.write(dir.path());
  const auto want = logits(golden_dir(GetParam()));
  ASSERT_GE(want.size(), 2u);
  EXPECT_TRUE(logits(dir.path()) == want);
  EXPECT_TRUE(logits(dir.path(), true) == want) << "on the test device";
}

// Ranks cut the stacked rows.
TEST_P(StackedCheckpoint, OnTwoRanks) {
  if (GetParam() != "deepseek_v3" && GetParam() != "mixtral" && GetParam() != "nemotron_h") return;
  ModelFiles files = ModelFiles::read(golden_dir(GetParam()));
  to_version_5(files);
  const TempDir dir;
  files.write(dir.path());
  const GoldenCase longest = read_golden(golden_dir(GetParam()) / "golden.safetensors")[2];
  for (const bool expert_parallel : {false, true}) {
    const auto communicators = make_in_process_communicators(2);
    std::vector<GoldenModel> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      auto model = open_golden({.model_dir = dir.path(),
                                .ranks = {.rank = rank, .size = 2, .expert_parallel = expert_parallel},
                                .communicator = communicators[static_cast<std::size_t>(rank)].get(),
                                .threads = 1});
      ASSERT_THAT(model, Succeeds());
      ranks.push_back(std::move(model).value());
    }
    std::vector<std::thread> threads;
    for (GoldenModel& model : ranks) {
      threads.emplace_back(
          [&] { EXPECT_LE(relative_error(model.logits(longest.ids, -1, {256}), longest.logits), kGoldenBound); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, StackedCheckpoint, testing::ValuesIn(goldens()),
                         [](const auto& test) { return test.param; });

// All but gpt_oss, gemma4_text and llama4_text, whose files are stacked as they are.
TEST(StackedCheckpoints, CoverTheGoldens) { EXPECT_EQ(goldens().size(), 31u); }

}  // namespace
}  // namespace cadre::test
