// Random models of every family: their files open, run, and take adapters of every layout.
#include "synth/model_folder.h"

#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "io/checkpoint.h"
#include "model/families/family.h"
#include "model/golden.h"
#include "model/tensor_plan.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"
#include "synth/adapter_files.h"
#include "synth/model_spec.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::int32_t> kIds = {5, 300, 17, 401, 77, 260, 8, 9, 300};

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.model_type);
  return names;
}

EngineOptions engine_options(const fs::path& dir) {
  EngineOptions options;
  options.model_dir = dir.string();
  options.max_num_seqs = 1;
  options.max_model_len = 64;
  return options;
}

std::vector<float> logits_of(Engine& engine, const std::string& adapter) {
  Result<std::vector<float>> logits = engine.logits(kIds, adapter, 4);
  EXPECT_THAT(logits, Succeeds());
  return logits.ok() ? *std::move(logits) : std::vector<float>{};
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

class SynthFamily : public testing::TestWithParam<std::string> {};

TEST_P(SynthFamily, RunsWithAdaptersOfEveryLayout) {
  const TempDir dir;
  const fs::path model = dir.path() / "model";
  Result<Json> config = small_family_config(GetParam());
  ASSERT_THAT(config, Succeeds());
  SynthOptions options{.config = *config, .out = model, .adapters = 1, .adapter_rank = 3};
  ASSERT_THAT(write_synth_model(options), Succeeds());

  // The other layouts, by the targets of the same model.
  Result<ModelConfig> parsed = read_model_config(model.string());
  ASSERT_THAT(parsed, Succeeds());
  Result<TensorPlan> plan = plan_tensors(*parsed, "model");
  ASSERT_THAT(plan, Succeeds());
  EngineOptions engine_opts = engine_options(model);
  for (const std::string& layout : adapter_layouts()) {
    const fs::path folder = dir.path() / layout;
    Result<AdapterTensors> tensors = adapter_tensors(plan->targets, 3, layout);
    ASSERT_THAT(tensors, Succeeds());
    ASSERT_THAT(write_synth_adapter(folder, *tensors, {.rank = 3, .seed = 5}), Succeeds());
    engine_opts.adapters.push_back({.name = layout, .dir = folder.string()});
  }
  engine_opts.adapters.push_back({.name = "adapter_0", .dir = (model / "adapters" / "adapter_0").string()});
  Result<std::unique_ptr<Engine>> engine = Engine::open(engine_opts);
  ASSERT_THAT(engine, Succeeds());
  const std::vector<float> base = logits_of(**engine, "");
  ASSERT_FALSE(base.empty());
  EXPECT_TRUE(all_finite(base));
  // Not a model that says the same whatever it is asked.
  const std::size_t vocab = base.size() / kIds.size();
  EXPECT_GT(relative_error({base.data(), vocab}, {base.data() + 3 * vocab, vocab}), 0.1);
  for (const AdapterSource& source : engine_opts.adapters) {
    const std::vector<float> with = logits_of(**engine, source.name);
    EXPECT_TRUE(all_finite(with)) << source.name;
    EXPECT_GT(relative_error(with, base), 0.01) << source.name;
    const Result<AdapterCheck> check = check_adapter(model.string(), source);
    ASSERT_THAT(check, Succeeds());
    EXPECT_TRUE(check->usable) << check->text;
  }
}

TEST_P(SynthFamily, IsTheSameInMemory) {
  const TempDir dir;
  Result<Json> config = small_family_config(GetParam());
  ASSERT_THAT(config, Succeeds());
  ASSERT_THAT(write_synth_model({.config = *config, .out = dir.path() / "files", .seed = 11}), Succeeds());
  const fs::path texts = dir.path() / "texts";
  fs::create_directory(texts);
  ASSERT_THAT(write_synth_texts(*config, texts, true), Succeeds());
  std::vector<std::vector<float>> logits;
  for (const bool dummy : {false, true}) {
    EngineOptions options = engine_options(dummy ? texts : dir.path() / "files");
    options.dummy_weights = dummy;
    options.dummy_seed = 11;
    Result<std::unique_ptr<Engine>> engine = Engine::open(options);
    ASSERT_THAT(engine, Succeeds());
    logits.push_back(logits_of(**engine, ""));
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST_P(SynthFamily, IsCutToAnyNumberOfLayers) {
  Result<Json> config = small_family_config(GetParam());
  ASSERT_THAT(config, Succeeds());
  Result<ModelConfig> whole = parse_model_config(*config);
  ASSERT_THAT(whole, Succeeds());
  Result<TensorPlan> all = plan_tensors(*whole, "all");
  ASSERT_THAT(all, Succeeds());
  std::size_t before = 0;
  for (std::int64_t layers = 1; layers <= all->targets.layers; ++layers) {
    Result<Json> cut = cut_layers(*config, layers);
    ASSERT_THAT(cut, Succeeds());
    Result<ModelConfig> parsed = parse_model_config(*cut);
    ASSERT_THAT(parsed, Succeeds());
    Result<TensorPlan> plan = plan_tensors(*parsed, "cut");
    ASSERT_THAT(plan, Succeeds());
    EXPECT_EQ(plan->targets.layers, layers);
    EXPECT_GT(plan->checkpoint->tensor_count(), before);
    before = plan->checkpoint->tensor_count();
  }
  EXPECT_EQ(before, all->checkpoint->tensor_count());
  EXPECT_EQ(cut_layers(*config, all->targets.layers + 1).status().code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, SynthFamily, testing::ValuesIn(family_names()),
                         [](const auto& family) { return family.param; });

// transformers saves a model under the names in which the family is published: the plan of a golden's config is exactly
// what its file holds. But for Qwen3.5, whose published checkpoints stack the experts, and which transformers saves one
// by one.
class PublishedLayout : public testing::TestWithParam<std::string> {};

TEST_P(PublishedLayout, NamesAndShapesAreThoseOfTheFile) {
  const fs::path dir = golden_dir(GetParam());
  Result<ModelConfig> config = read_model_config(dir.string());
  ASSERT_THAT(config, Succeeds());
  Result<TensorPlan> plan = plan_tensors(*config, "plan");
  ASSERT_THAT(plan, Succeeds());
  Result<std::shared_ptr<Checkpoint>> file = Checkpoint::open(dir);
  ASSERT_THAT(file, Succeeds());
  std::map<std::string, std::vector<std::int64_t>> want, got;
  for (const std::string_view name : (*file)->names()) want.emplace(name, (*file)->find(name)->shape);
  for (const std::string_view name : plan->checkpoint->names()) got.emplace(name, plan->checkpoint->find(name)->shape);
  if (config->model_type == "qwen3_5_moe_text") {
    const auto is_of_experts = [](const auto& entry) { return entry.first.find(".mlp.experts.") != std::string::npos; };
    EXPECT_EQ(std::erase_if(got, is_of_experts), plan->moe_layers.size() * 2);
    std::erase_if(want, is_of_experts);
  }
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Goldens, PublishedLayout, testing::ValuesIn(golden_models()),
                         [](const auto& family) { return family.param; });

Json with(const Json& config, std::vector<Json::Member> more) {
  std::vector<Json::Member> members(config.members().begin(), config.members().end());
  for (Json::Member& member : more) members.push_back(std::move(member));
  return Json::object(std::move(members));
}

// FP8 changes the type of tensors and adds factors, no names.
TEST_P(SynthFamily, Fp8HasTheSameNames) {
  Result<Json> config = small_family_config(GetParam());
  ASSERT_THAT(config, Succeeds());
  const auto names = [&](const Json& json) -> std::set<std::string> {
    const Result<ModelConfig> parsed = parse_model_config(json);
    EXPECT_THAT(parsed, Succeeds());
    if (!parsed.ok()) return {};
    const Result<TensorPlan> plan = plan_tensors(*parsed, "plan");
    EXPECT_THAT(plan, Succeeds());
    if (!plan.ok()) return {};
    std::set<std::string> out;
    for (const std::string_view name : plan->checkpoint->names()) {
      if (!name.ends_with("_scale_inv")) out.emplace(name);
    }
    return out;
  };
  const Json fp8 = Json::object({{"quant_method", "fp8"}, {"weight_block_size", Json::array({128, 128})}});
  EXPECT_EQ(names(config->with("quantization_config", fp8)), names(*config));
}

TEST(Synth, OverridesThatNothingReadsAreRefused) {
  Result<Json> config = small_family_config("qwen3_moe");
  ASSERT_THAT(config, Succeeds());
  EXPECT_THAT(synth_config(*config, R"({"sliding_windw": null})", {}),
              FailsWith(Code::kInvalidArgument, "nothing reads"));
  const Result<Json> fewer = synth_config(*config, R"({"num_experts_per_tok": 2})", 1);
  ASSERT_THAT(fewer, Succeeds());
  EXPECT_EQ(fewer->get_int("num_experts_per_tok").value(), 2);
  EXPECT_EQ(fewer->get_int("num_hidden_layers").value(), 1);
}

TEST(Synth, AQuantisationOfNothingIsRefused) {
  Result<Json> config = small_family_config("nemotron_h");
  ASSERT_THAT(config, Succeeds());
  const Json mxfp4 = Json::object({{"quant_method", "mxfp4"}});
  const Result<ModelConfig> parsed = parse_model_config(config->with("quantization_config", mxfp4));
  ASSERT_THAT(parsed, Succeeds());
  EXPECT_THAT(plan_tensors(*parsed, "plan"),
              FailsWith(Code::kUnsupported, "no tensor of nemotron_h is stored as MXFP4"));
}

TEST(Synth, QuantisedModelsRun) {
  const Json fp8 = Json::object({{"quant_method", "fp8"}, {"weight_block_size", Json::array({128, 128})}});
  const Json mxfp4 = Json::object({{"quant_method", "mxfp4"}});
  const std::map<std::string, std::vector<Json::Member>> kModels = {
      {"deepseek_v3", {{"quantization_config", fp8}}},
      {"minimax_m2", {{"quantization_config", fp8}}},
      {"llama4_text", {{"quantization_config", fp8}}},
      {"gpt_oss", {{"quantization_config", mxfp4}, {"intermediate_size", 64}}}};
  for (const auto& [family, more] : kModels) {
    SCOPED_TRACE(family);
    const TempDir dir;
    Result<Json> config = small_family_config(family);
    ASSERT_THAT(config, Succeeds());
    ASSERT_THAT(write_synth_model({.config = with(*config, more), .out = dir.path() / "model"}), Succeeds());
    std::set<DType> types;
    Result<std::shared_ptr<Checkpoint>> file = Checkpoint::open(dir.path() / "model");
    ASSERT_THAT(file, Succeeds());
    for (const std::string_view name : (*file)->names()) types.insert((*file)->find(name)->dtype);
    EXPECT_TRUE(types.contains(family == "gpt_oss" ? DType::kU8 : DType::kF8E4M3));
    Result<std::unique_ptr<Engine>> engine = Engine::open(engine_options(dir.path() / "model"));
    ASSERT_THAT(engine, Succeeds());
    const std::vector<float> logits = logits_of(**engine, "");
    EXPECT_TRUE(all_finite(logits));
    double square = 0;
    for (const float value : logits) square += static_cast<double>(value) * value;
    const double deviation = std::sqrt(square / static_cast<double>(logits.size()));
    EXPECT_GT(deviation, 0.2);
    EXPECT_LT(deviation, 5);
  }
}

TEST(Synth, ShardsHoldTheSameModel) {
  const TempDir dir;
  Result<Json> config = small_family_config("qwen3_moe");
  ASSERT_THAT(config, Succeeds());
  ASSERT_THAT(write_synth_model({.config = *config, .out = dir.path() / "one"}), Succeeds());
  SynthOptions options{.config = *config, .out = dir.path() / "many", .max_shard_bytes = 100'000};
  Result<SynthReport> report = write_synth_model(options);
  ASSERT_THAT(report, Succeeds());
  EXPECT_GT(report->shards, 3);
  Result<std::shared_ptr<Checkpoint>> one = Checkpoint::open(dir.path() / "one");
  Result<std::shared_ptr<Checkpoint>> many = Checkpoint::open(dir.path() / "many");
  ASSERT_THAT(one, Succeeds());
  ASSERT_THAT(many, Succeeds());
  ASSERT_EQ((*one)->names(), (*many)->names());
  for (const std::string_view name : (*one)->names()) {
    const auto a = (*one)->find(name)->bytes(), b = (*many)->find(name)->bytes();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name;
  }
}

TEST(Synth, WhatCannotBeFinishedLeavesNoModel) {
  const TempDir dir;
  Result<Json> config = small_family_config("qwen3_moe");
  ASSERT_THAT(config, Succeeds());
  SynthOptions options{.config = *config, .out = dir.path() / "model", .max_shard_bytes = 100'000};
  options.progress = [](std::uint64_t done, std::uint64_t all) {
    return done * 2 < all ? Status() : Status(Code::kCancelled, "enough");
  };
  EXPECT_EQ(write_synth_model(options).status().code(), Code::kCancelled);
  EXPECT_FALSE(fs::exists(dir.path() / "model"));
  // A folder that was there stays; adapters may be ended as well.
  fs::create_directory(dir.path() / "model");
  options.adapters = 3;
  options.progress = [](std::uint64_t done, std::uint64_t all) {
    return done < all ? Status() : Status(Code::kCancelled, "enough");
  };
  EXPECT_EQ(write_synth_model(options).status().code(), Code::kCancelled);
  EXPECT_TRUE(fs::is_empty(dir.path() / "model"));
  options.progress = {};
  ASSERT_THAT(write_synth_model(options), Succeeds());
  EXPECT_THAT(write_synth_model(options), FailsWith(Code::kInvalidArgument, "is not empty"));
}

TEST(Synth, NothingOfTheUsersIsTouched) {
  const TempDir dir;
  Result<Json> config = small_family_config("qwen3_moe");
  ASSERT_THAT(config, Succeeds());
  const fs::path own = dir.write("out/tokenizer.json", "mine");
  EXPECT_THAT(write_synth_model({.config = *config, .out = dir.path() / "out"}),
              FailsWith(Code::kInvalidArgument, "it holds tokenizer.json"));
  EXPECT_EQ(fs::file_size(own), 4u);
}

TEST(Synth, AVocabularyNoTokenizerHoldsIsRefusedBeforeAnythingIsMade) {
  const TempDir dir;
  Result<Json> config = small_family_config("qwen3_moe");
  ASSERT_THAT(config, Succeeds());
  for (const std::int64_t vocab : {10, 5'000'000}) {
    EXPECT_THAT(write_synth_model({.config = config->with("vocab_size", vocab), .out = dir.path() / "out"}),
                FailsWith(vocab == 10 ? Code::kInvalidArgument : Code::kLimitExceeded, "vocab_size"));
    EXPECT_FALSE(fs::exists(dir.path() / "out"));
  }
}

TEST(Synth, ConfigsBeyondReasonAreRefused) {
  Result<Json> config = small_family_config("qwen3_moe");
  ASSERT_THAT(config, Succeeds());
  for (const std::vector<Json::Member>& more : std::vector<std::vector<Json::Member>>{
           {{"hidden_size", 2147483647}, {"vocab_size", 2147483647}}, {{"num_hidden_layers", 65536}}}) {
    const Result<ModelConfig> parsed = parse_model_config(with(*config, more));
    ASSERT_THAT(parsed, Succeeds());
    EXPECT_THAT(plan_tensors(*parsed, "plan"), FailsWith(Code::kLimitExceeded, "want at most")) << more[0].first;
  }
}

}  // namespace
}  // namespace cadre::test
