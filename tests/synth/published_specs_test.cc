// The configs in examples/specs are those of published checkpoints: each plans whole, with as many parameters as its
// makers say.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/result.h"
#include "io/checkpoint.h"
#include "model/families/family.h"
#include "model/tensor_plan.h"
#include "support/status_matchers.h"
#include "synth/model_spec.h"
#include "synth/tokenizer_files.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

// As model cards, reports and the files' own counts say, text part only and without layers for multi-token prediction.
constexpr double kRounded = 0.01;
struct Count {
  double billions;
  double within = 0.002;
};
const std::map<std::string, Count> kPublished = {
    {"deepseek-v2", {235.7}},        {"deepseek-v2-lite", {15.7}},    {"deepseek-v3", {671.0}},
    {"dots.llm1", {142.8}},          {"ernie-4.5-21b-a3b", {21.83}},  {"flex-olmo-7x7b-1t", {33, kRounded}},
    {"gemma-4-26b-a4b", {25.2}},     {"glm-4.5", {355, kRounded}},    {"glm-4.5-air", {106, kRounded}},
    {"gpt-oss-120b", {116.8}},       {"gpt-oss-20b", {20.91}},        {"granite-3.1-1b-a400m", {1.33, kRounded}},
    {"granite-3.1-3b-a800m", {3.3}}, {"granite-4.0-h-small", {32.2}}, {"granite-4.0-h-tiny", {6.94}},
    {"hunyuan-a13b", {80.4}},        {"kimi-k2", {1026.4}},           {"lfm2-8b-a1b", {8.34}},
    {"llama-4-scout", {107.8}},      {"minimax-m2", {228.7}},         {"mixtral-8x22b", {140.6}},
    {"mixtral-8x7b", {46.7}},        {"nemotron-3-nano", {31.6}},     {"nemotron-3-super", {120.7}},
    {"olmoe-1b-7b", {6.919}},        {"phi-3.5-moe", {41.9}},         {"qwen1.5-moe-a2.7b", {14.3}},
    {"qwen2-57b-a14b", {57.4}},      {"qwen3-235b-a22b", {235.1}},    {"qwen3-30b-a3b", {30.53}},
    {"qwen3-next-80b-a3b", {79.67}}, {"qwen3.5-35b-a3b", {34.66}},
};

std::set<std::string> spec_names() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(CADRE_SOURCE) / "examples" / "specs")) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") names.insert(entry.path().stem().string());
  }
  return names;
}

Result<TensorPlan> plan_of(const Json& json) {
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(json));
  return plan_tensors(config, "plan");
}

Json without_quantisation(const Json& json) {
  std::vector<Json::Member> kept;
  for (const auto& [key, value] : json.members()) {
    if (key != "quantization_config") kept.emplace_back(key, value);
  }
  return Json::object(std::move(kept));
}

class PublishedSpec : public testing::TestWithParam<std::string> {};

TEST_P(PublishedSpec, HasTheParametersThatItsMakersCount) {
  ASSERT_TRUE(kPublished.contains(GetParam())) << "want its number of parameters in this test's table";
  const fs::path path = fs::path(CADRE_SOURCE) / "examples" / "specs" / (GetParam() + ".json");
  Result<Json> config = read_config_file(path.string());
  ASSERT_THAT(config, Succeeds());
  Result<TensorPlan> plan = plan_of(without_quantisation(*config));
  ASSERT_THAT(plan, Succeeds());
  EXPECT_FALSE(plan->moe_layers.empty());
  double parameters = 0;
  for (const TensorInfo& tensor : plan->checkpoint->made_tensors()) {
    double elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= static_cast<double>(size);
    parameters += elements;
  }
  const Count published = kPublished.at(GetParam());
  EXPECT_NEAR(parameters * 1e-9, published.billions, published.within * published.billions);
  RecordProperty("billions", std::to_string(parameters * 1e-9));

  // As published, in fewer bits, the same layers.
  Result<TensorPlan> stored = plan_of(*config);
  ASSERT_THAT(stored, Succeeds());
  EXPECT_EQ(stored->moe_layers, plan->moe_layers);
  EXPECT_EQ(stored->checkpoint->tensor_bytes() < plan->checkpoint->tensor_bytes(), config->has("quantization_config"));
}

// Of every size of vocabulary, with the special tokens where the config wants them.
TEST_P(PublishedSpec, HasRoomForATokenizer) {
  const fs::path path = fs::path(CADRE_SOURCE) / "examples" / "specs" / (GetParam() + ".json");
  Result<Json> json = read_config_file(path.string());
  ASSERT_THAT(json, Succeeds());
  Result<ModelConfig> config = parse_model_config(*json);
  ASSERT_THAT(config, Succeeds());
  const auto files = make_tokenizer_files(*config);
  ASSERT_THAT(files, Succeeds());
  EXPECT_EQ(files->size(), 3u);
}

TEST_P(PublishedSpec, IsCutToFewerLayers) {
  const fs::path path = fs::path(CADRE_SOURCE) / "examples" / "specs" / (GetParam() + ".json");
  Result<Json> config = read_config_file(path.string());
  ASSERT_THAT(config, Succeeds());
  std::uint64_t before = 0;
  for (const std::int64_t layers : {1, 2, 5}) {
    Result<Json> cut = synth_config(*config, "", layers);
    ASSERT_THAT(cut, Succeeds());
    Result<TensorPlan> plan = plan_of(*cut);
    ASSERT_THAT(plan, Succeeds());
    EXPECT_EQ(plan->targets.layers, layers);
    EXPECT_GT(plan->checkpoint->tensor_bytes(), before);
    before = plan->checkpoint->tensor_bytes();
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, PublishedSpec, testing::ValuesIn(spec_names()), [](const auto& spec) {
  std::string name = spec.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(PublishedSpecs, EveryPublishedFamilyHasOne) {
  std::set<std::string> seen;
  for (const std::string& name : spec_names()) {
    const fs::path path = fs::path(CADRE_SOURCE) / "examples" / "specs" / (name + ".json");
    Result<Json> config = read_config_file(path.string());
    ASSERT_THAT(config, Succeeds());
    Result<ModelConfig> parsed = parse_model_config(*config);
    ASSERT_THAT(parsed, Succeeds());
    seen.insert(parsed->model_type);
  }
  for (const Family& family : families()) {
    const bool published = family.model_type != "granitemoeshared";  // experimental checkpoints only
    EXPECT_EQ(seen.contains(std::string(family.model_type)), published) << family.model_type;
  }
}

}  // namespace
}  // namespace cadre::test
