// Weights that are not finite: found while a backend packs them, or by the rehearsal; and re-selection that fails
// leaves everything as it was.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/adapter_set.h"
#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

// The golden with one number of a tensor replaced by NaN.
void write_with_nan(const std::string& model, const std::string& tensor, const std::filesystem::path& dir) {
  ModelFiles files = ModelFiles::read(golden_dir(model));
  ASSERT_TRUE(files.tensors.contains(tensor)) << tensor;
  const std::uint16_t nan = 0x7fc0;
  std::memcpy(files.tensors[tensor].bytes.data() + 6, &nan, sizeof nan);
  files.write(dir);
}

Result<std::unique_ptr<Engine>> open(const std::filesystem::path& dir, const std::string& policy) {
  EngineOptions options;
  options.model_dir = dir;
  options.need_tokenizer = false;
  options.backend = *parse_policy(policy, "test");
  return Engine::open(options);
}

TEST(WeightValues, PackingNamesTheTensor) {
  const TempDir dir;
  const std::string tensor = "model.layers.1.mlp.experts.5.down_proj.weight";
  write_with_nan("qwen3_moe", tensor, dir.path());
  for (const char* policy : {"auto", "require cpu_vector"}) {
    const auto engine = open(dir.path(), policy);
    EXPECT_THAT(engine, FailsWith(Code::kInvalidFile, "'" + tensor + "' is not finite"));
    EXPECT_THAT(engine, FailsWith(Code::kInvalidFile, "MoE layer"));
  }
}

TEST(WeightValues, TheRehearsalSaysThatTheReferenceIsNotFinite) {
  const TempDir dir;
  // Every expert of the first layer, so that the rehearsal's few rows meet one.
  ModelFiles files = ModelFiles::read(golden_dir("qwen3_moe"));
  const std::uint16_t nan = 0x7fc0;
  for (int e = 0; e < 8; ++e) {
    std::memcpy(files.tensors["model.layers.0.mlp.experts." + std::to_string(e) + ".up_proj.weight"].bytes.data(), &nan,
                2);
  }
  files.write(dir.path());
  const auto engine = open(dir.path(), "require cpu_reference");
  EXPECT_THAT(engine, FailsWith(Code::kInvalidFile, "--check-weights names the tensor"));
  EXPECT_THAT(engine, FailsWith(Code::kInvalidFile, "MoE layer 0"));
}

TEST(Reselection, WhatFailsLeavesEverythingAsItWas) {
  auto device = make_test_device(std::size_t{64} << 20);
  ASSERT_TRUE(device.ok());
  ModelOptions options;
  options.dir = golden_dir("qwen3_moe");
  options.device = *device;
  auto model = Model::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  AdapterSet set(EngineOptions{}, make_moe_gate(), SelectOptions{});
  const auto source = [](const std::string& name) {
    return AdapterSource{.name = name, .dir = (golden_dir("qwen3_moe") / "adapters" / name).string()};
  };
  ASSERT_TRUE(set.prepare(**model, {source("attn")}).ok());
  auto runner = Runner::make(std::move(*model),
                             {.max_tokens = 64, .max_sequences = 4, .max_logit_rows = 64, .pages = 16}, nullptr);
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  ASSERT_TRUE(set.attach(**runner).ok());
  const Ids ids = read_golden(golden_dir("qwen3_moe") / "golden.safetensors")[2].ids;
  const auto logits = [&](const char* name) {
    const auto loaded = set.find(name);
    EXPECT_TRUE(loaded.ok());
    SequenceState state;
    EXPECT_TRUE((*runner)->pool().reserve(state, static_cast<std::int64_t>(ids.size())));
    const RunItem item{
        .state = &state, .ids = ids, .slot = *loaded == nullptr ? -1 : (*loaded)->info.slot, .all_logits = true};
    const std::span<float> rows = (*runner)->run({&item, 1});
    std::vector<float> out(rows.begin(), rows.end());
    (*runner)->pool().release(state);
    return out;
  };
  const std::vector<float> base = logits(""), attn = logits("attn");
  ASSERT_NE(base, attn);

  // Less and less memory: the load fails at one step after another, until it succeeds.
  int failures = 0;
  for (std::size_t left = 0;; left += std::size_t{12} << 10) {
    std::vector<Buffer> taken;
    for (std::size_t size = std::size_t{1} << 20; size >= 4096; size /= 2) {
      for (auto buffer = (*device)->allocate(size); buffer.ok(); buffer = (*device)->allocate(size))
        taken.push_back(*buffer);
    }
    std::size_t freed = 0;
    while (freed < left && !taken.empty()) {
      freed += taken.back().bytes();
      taken.pop_back();
    }
    const auto read = set.read((*runner)->model(), source("experts"));
    ASSERT_TRUE(read.ok()) << read.status().message();
    const auto loaded = set.load(**runner, *read);
    taken.clear();
    EXPECT_EQ(logits(""), base);
    EXPECT_EQ(logits("attn"), attn);
    if (loaded.ok()) break;
    EXPECT_EQ(loaded.status().code(), Code::kOutOfMemory) << loaded.status().message();
    EXPECT_EQ(set.find("experts").status().code(), Code::kNotFound);
    ASSERT_LT(++failures, 1000);
  }
  EXPECT_GT(failures, 2);
  EXPECT_NE(logits("experts"), base);
}

}  // namespace
}  // namespace cadre::test
