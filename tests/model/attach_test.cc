// Adapters come and go: the base keeps its bits, and detaching gives the memory back. Shown on a device that has no
// more memory than the model and the adapters attached at one time need.
#include <gtest/gtest.h>

#include "model/golden.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

constexpr std::size_t kCapacity = std::size_t{8} << 20;

// Takes all memory that the device has left.
std::vector<Buffer> take_the_rest(Device& device) {
  std::vector<Buffer> taken;
  for (std::size_t bytes = kCapacity; bytes >= 64; bytes /= 2) {
    for (auto buffer = device.allocate(bytes); buffer.ok(); buffer = device.allocate(bytes)) {
      taken.push_back(std::move(buffer).value());
    }
  }
  return taken;
}

struct Case {
  std::string model, small, large;  // adapters; `large` needs more memory
};

class Attach : public testing::TestWithParam<Case> {
 protected:
  std::filesystem::path adapter(const std::string& name) const {
    const auto golden = golden_dir(GetParam().model) / "adapters" / name;
    return std::filesystem::exists(golden) ? golden : extra_dir() / GetParam().model / name;
  }
  GoldenSetup setup(std::shared_ptr<Device> device) const {
    return {.model_dir = golden_dir(GetParam().model),
            .adapters = {{"small", adapter(GetParam().small)}, {"large", adapter(GetParam().large)}},
            .device = std::move(device),
            .threads = 1};
  }
};

TEST_P(Attach, ManyTimesInTheSameMemory) {
  const auto device = make_test_device(kCapacity);
  ASSERT_THAT(device, Succeeds());
  auto golden = open_golden(setup(*device));
  ASSERT_THAT(golden, Succeeds());
  Model& model = golden->runner->model();
  Stream& stream = golden->runner->stream();
  const Adapter &small = *golden->adapters[0], &large = *golden->adapters[1];
  const auto base = read_golden(golden_dir(GetParam().model) / "golden.safetensors");
  const auto answers = read_golden(adapter(GetParam().small) / "golden.safetensors");
  const std::vector<float> base_bits = golden->logits(base[1].ids, -1, {256});
  EXPECT_LE(relative_error(base_bits, base[1].logits), kGoldenBound);

  // From here on the only free memory is that of the small adapter, once it is detached.
  model.detach(stream, 1);
  const std::vector<Buffer> rest = take_the_rest(**device);
  for (int i = 0; i < 20; ++i) {
    model.detach(stream, 0);
    if (i % 5 == 0) {
      EXPECT_EQ(golden->logits(base[1].ids, -1, {256}), base_bits) << "detached, round " << i;
      // What fails leaves nothing behind: neither a term nor memory.
      EXPECT_THAT(model.attach(stream, 1, large), FailsWith(Code::kOutOfMemory, "adapter 'large'"));
      EXPECT_EQ(golden->logits(base[1].ids, 1, {256}), base_bits) << "failed, round " << i;
    }
    ASSERT_THAT(model.attach(stream, 0, small), Succeeds()) << "round " << i;
    if (i % 5 == 0) {
      EXPECT_EQ(golden->logits(base[1].ids, -1, {256}), base_bits) << "attached, round " << i;
      EXPECT_LE(relative_error(golden->logits(answers[1].ids, 0, {256}), answers[1].logits), kGoldenBound);
    }
  }
}

// A model that is closed leaves the device as it was: opened again and again where two do not fit.
TEST_P(Attach, ClosingGivesAllMemoryBack) {
  const auto device = make_test_device(kCapacity);
  ASSERT_THAT(device, Succeeds());
  for (int i = 0; i < 3; ++i) {
    {
      auto golden = open_golden(setup(*device));
      ASSERT_THAT(golden, Succeeds()) << "time " << i;
      EXPECT_FALSE((*device)->allocate(kCapacity).ok());
    }
    EXPECT_THAT((*device)->allocate(kCapacity), Succeeds()) << "time " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Attach,
    testing::Values(Case{"qwen3_moe", "experts", "save_lm_head"}, Case{"qwen3_moe", "save_lm_head", "attn_experts"},
                    Case{"nemotron_h", "attn", "attn_experts"}, Case{"mixtral", "attn", "experts"}),
    [](const testing::TestParamInfo<Case>& test) { return test.param.model + "_" + test.param.small; });

}  // namespace
}  // namespace cadre::test
