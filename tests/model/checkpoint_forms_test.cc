// The same weights in every form in which checkpoints store them: bits of the logits must not change.
#include <gtest/gtest.h>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/exec_fixture.h"
#include "support/temp_dir.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

class CheckpointForms : public testing::TestWithParam<std::string> {
 protected:
  // Logits of the base and of the adapter on the experts.
  std::vector<std::vector<float>> logits(const std::filesystem::path& dir, bool test_device = false) const {
    GoldenSetup setup{.model_dir = dir, .adapters = {{"experts", golden_dir(GetParam()) / "adapters/experts"}}};
    if (test_device) setup.device = make_test_device(std::size_t{64} << 20).value();
    auto model = open_golden(setup);
    EXPECT_THAT(model, Succeeds());
    if (!model.ok()) return {};
    const Ids ids = read_golden(golden_dir(GetParam()) / "golden.safetensors")[2].ids;
    return {model->logits(ids, -1, {256}), model->logits(ids, 0, {256})};
  }
  void expect_same(const std::filesystem::path& dir, bool test_device = false) const {
    const auto want = logits(golden_dir(GetParam())), got = logits(dir, test_device);
    ASSERT_EQ(got.size(), 2u);
    EXPECT_TRUE(got == want) << "relative error " << relative_error(got[0], want[0]) << " of the base, "
                             << relative_error(got[1], want[1]) << " of the adapter";
  }

  ModelFiles files_ = ModelFiles::read(golden_dir(GetParam()));
  TempDir dir_;
};

TEST_P(CheckpointForms, Shards) {
  for (const int shards : {2, 3}) {
    const auto dir = dir_ / std::to_string(shards);
    files_.write_shards(dir, shards);
    expect_same(dir);
  }
}

TEST_P(CheckpointForms, Float32) {
  for (auto& [name, tensor] : files_.tensors) tensor = converted(tensor, DType::kF32);
  files_.write(dir_.path());
  expect_same(dir_.path());
}

// As checkpoints keep routers, selection biases and norms wider than the rest; here every second tensor, and the
// experts of one layer.
TEST_P(CheckpointForms, MixedTypes) {
  std::size_t i = 0;
  for (auto& [name, tensor] : files_.tensors) {
    const bool expert = name.find(".experts.") != std::string::npos;
    if (expert ? name.find(".layers.1.") != std::string::npos : i++ % 2 == 0) tensor = converted(tensor, DType::kF32);
  }
  files_.write(dir_.path());
  expect_same(dir_.path());
}

TEST_P(CheckpointForms, Float16) {
  // Numbers that F16 holds exactly as well; almost all of the golden's are.
  std::size_t changed = 0, all = 0;
  ModelFiles half = files_;
  for (auto& [name, tensor] : files_.tensors) {
    const std::vector<float> before = tensor.values();
    const std::vector<float> snapped = rounded(DType::kF16, before);
    for (std::size_t k = 0; k < before.size(); ++k) changed += before[k] != snapped[k];
    all += before.size();
    tensor.bytes = to_bytes(DType::kBF16, snapped);
    half.tensors[name] = converted(tensor, DType::kF16);
  }
  EXPECT_LT(changed, all / 50);
  files_.write(dir_ / "bf16");
  half.write(dir_ / "f16");
  const auto want = logits(dir_ / "bf16"), got = logits(dir_ / "f16");
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(got == want);
  EXPECT_LT(relative_error(got[0], logits(golden_dir(GetParam()))[0]), 0.05);
}

TEST_P(CheckpointForms, OddAddresses) {
  files_.write_config(dir_.path());
  write_misaligned(files_, dir_ / "model.safetensors");
  const auto file = SafetensorsFile::open(dir_ / "model.safetensors");
  ASSERT_THAT(file, Succeeds());
  for (const TensorInfo& tensor : (*file)->tensors()) EXPECT_FALSE(tensor.is_aligned()) << tensor.name;
  expect_same(dir_.path());
  expect_same(dir_.path(), true);
}

// The prefix of transformers 5. The other families have one prefix.
TEST_P(CheckpointForms, NemotronUnderModelPrefix) {
  if (GetParam() != "nemotron_h") return;
  std::map<std::string, HostTensor> renamed;
  for (auto& [name, tensor] : files_.tensors) {
    renamed[name.starts_with("backbone.") ? "model." + name.substr(9) : name] = std::move(tensor);
  }
  files_.tensors = std::move(renamed);
  files_.write(dir_.path());
  expect_same(dir_.path());
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointForms,
                         testing::Values("qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "nemotron_h"),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

// A single file of any name is taken.
TEST(CheckpointNames, SingleFileOfAnotherName) {
  const TempDir dir;
  const ModelFiles files = ModelFiles::read(golden_dir("olmoe"));
  files.write_config(dir.path());
  files.write_weights(dir / "weights.safetensors");
  auto model = open_golden({.model_dir = dir.path()});
  ASSERT_THAT(model, Succeeds());
  const GoldenCase first = read_golden(golden_dir("olmoe") / "golden.safetensors")[0];
  EXPECT_LE(relative_error(model->logits(first.ids, -1, {256}), first.logits), kGoldenBound);
}

}  // namespace
}  // namespace cadre::test
