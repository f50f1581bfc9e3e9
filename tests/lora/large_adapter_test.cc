// An adapter of the size that real models have, in number of tensors: reading must not grow with their square.
#include <time.h>

#include <chrono>
#include <random>

#include "lora/adapter_files.h"
#include "lora/adapter_report.h"
#include "lora/golden_targets.h"

namespace cadre {
namespace {

constexpr int kLayers = 48, kExpertsEach = 128;
constexpr std::int64_t kWidth = 16, kIntermediate = 8;
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSlowBuild = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSlowBuild = true;
#else
constexpr bool kSlowBuild = false;
#endif
#else
constexpr bool kSlowBuild = false;
#endif
// 0.2 s on one core of a laptop; a square of the number of tensors would take minutes.
constexpr auto kLimit = std::chrono::seconds(kSlowBuild ? 20 : 1);

// Of this program: other programs may hold the cores.
std::chrono::nanoseconds processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

AdapterTargets large_targets() {
  AdapterTargets targets = small_targets(kExpertsEach, kWidth, kIntermediate);
  ExpertsTarget target = targets.experts[0];
  targets.experts.clear();
  targets.dense.clear();
  for (int layer = 0; layer < kLayers; ++layer) {
    target.layer = layer;
    target.module = "model.layers." + std::to_string(layer) + ".mlp.experts";
    targets.experts.push_back(target);
  }
  targets.layers = kLayers;
  targets.prefix_aliases = {{"backbone.", "model."}};
  return targets;
}

// `each` is called with the name of every projection of every expert.
template <class F>
void for_each_module(const std::string& prefix, const F& each) {
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int e = 0; e < kExpertsEach; ++e) {
      for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
        each(prefix + "layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(e) + "." + name);
      }
    }
  }
}

void write_large(const TempDir& folder, const std::string& prefix, const std::string& config) {
  folder.write("adapter_config.json", config);
  const std::vector<float> values(64, 0.5f);
  std::vector<NamedTensor> tensors;
  for_each_module("base_model.model." + prefix, [&](const std::string& module) {
    const bool down = module.ends_with("down_proj");
    const std::int64_t in = down ? kIntermediate : kWidth, out = down ? kWidth : kIntermediate;
    const auto bytes = std::as_bytes(std::span(values));
    tensors.push_back({module + ".lora_A.weight", DType::kF32, {2, in}, bytes.subspan(0, std::size_t(in) * 8)});
    tensors.push_back({module + ".lora_B.weight", DType::kF32, {out, 2}, bytes.subspan(0, std::size_t(out) * 8)});
  });
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(1));
  ASSERT_EQ(tensors.size(), 36'864u);
  ASSERT_THAT(write_safetensors(folder / "adapter_model.safetensors", tensors), Succeeds());
}

void expect_fast(const std::string& prefix, const std::string& config) {
  const TempDir folder;
  write_large(folder, prefix, config);
  const AdapterTargets targets = large_targets();
  const std::chrono::nanoseconds begin = processor_time();
  const Result<std::shared_ptr<const Adapter>> adapter = read_adapter(folder.path().string(), "large", targets);
  const std::chrono::nanoseconds took = processor_time() - begin;
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_LT(took, kLimit);
  testing::Test::RecordProperty("milliseconds",
                                int(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  EXPECT_EQ((*adapter)->experts.size(), std::size_t(kLayers));
  EXPECT_EQ((*adapter)->report.bindings.size(), std::size_t(3 * kLayers));
  for (const auto& [index, lora] : (*adapter)->experts) EXPECT_EQ(lora.gate.back().rank(), 2);
  EXPECT_LT(report_text(**adapter).size(), 2000u);  // layers that are alike share lines
}

TEST(LargeAdapter, PerExpert) { expect_fast("model.", config_text()); }

TEST(LargeAdapter, PerExpertUnderAnotherPrefix) { expect_fast("backbone.", config_text()); }

// Tools that choose ranks write one key for each module, and some expressions beside them.
TEST(LargeAdapter, WithAPatternForEachModule) {
  std::string ranks, alphas;
  for_each_module("model.", [&](const std::string& module) {
    ranks += (ranks.empty() ? "\"" : ", \"") + module + "\": 2";
    alphas += (alphas.empty() ? "\"" : ", \"") + module + "\": 8";
  });
  expect_fast("model.", config_text("\"rank_pattern\": {" + ranks + "}, \"alpha_pattern\": {\".*\\\\.k_proj\": 3, " +
                                        alphas + ", \".*\\\\.v_proj\": 3}",
                                    3));
}

TEST(LargeAdapter, AllLeftOver) {
  const TempDir folder;
  write_large(folder, "other.", config_text());
  const AdapterTargets targets = large_targets();
  const std::chrono::nanoseconds begin = processor_time();
  EXPECT_THAT(read_adapter(folder.path().string(), "large", targets),
              FailsWith(Code::kInvalidFile, "36864 of 36864 tensors bind to nothing"));
  EXPECT_LT(processor_time() - begin, kLimit);
}

}  // namespace
}  // namespace cadre
