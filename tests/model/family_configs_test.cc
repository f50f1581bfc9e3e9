// GLM-4.5, MiniMax-M2 and Hunyuan A13B with the configs that those models are published with, and attention within a
// window in every family that knows one: what transformers and PEFT compute, however the prompt is fed.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

Json text(const char* json) { return Json::parse(json, "test").value(); }

// The layer after the last, which predicts further tokens: a whole layer, and modules that no other layer has.
void add_draft_layer(ModelFiles& files, const std::string& last, const std::string& draft) {
  std::map<std::string, HostTensor> more;
  for (const auto& [name, tensor] : files.tensors) {
    if (name.starts_with(last)) more[draft + name.substr(last.size())] = tensor;
  }
  ASSERT_FALSE(more.empty());
  const HostTensor& norm = files.tensors.at(last + "input_layernorm.weight");
  for (const char* name : {"enorm", "hnorm", "shared_head.norm"}) more[draft + name + ".weight"] = norm;
  more[draft + "eh_proj.weight"] = files.tensors.at(last + "self_attn.q_proj.weight");
  more[draft + "embed_tokens.weight"] = files.tensors.at("model.embed_tokens.weight");
  more[draft + "shared_head.head.weight"] = files.tensors.at("lm_head.weight");
  files.tensors.merge(more);
}

struct Case {
  const char* name;  // of the folder in tests/data/extra/models
  std::function<void(ModelFiles&)> change = [](ModelFiles&) {};
  bool one_rank = false;
};

const std::vector<Case>& models() {
  static const std::vector<Case> kModels = {
      {"glm4_5_published", [](ModelFiles& files) { add_draft_layer(files, "model.layers.2.", "model.layers.3."); }},
      {"glm4_5_air_published",
       [](ModelFiles& files) {
         erase_tensors(files, ".q_norm.");
         erase_tensors(files, ".k_norm.");
         add_draft_layer(files, "model.layers.2.", "model.layers.3.");
       }},
      // its norm spans all heads
      {"minimax_m2_published", [](ModelFiles& files) { add_draft_layer(files, "model.layers.1.", "model.layers.2."); },
       true},
      {"hunyuan_a13b_published", [](ModelFiles& files) { erase_tensors(files, "lm_head"); }},
      {"dots1_window"},
      {"mixtral_window"},
      {"phimoe_window"},
      {"qwen2_moe_window"},
      {"qwen3_moe_window"},
  };
  return kModels;
}

const Case& model_of(const std::string& name) {
  for (const Case& model : models()) {
    if (model.name == name) return model;
  }
  ADD_FAILURE() << "no model " << name;
  return models().front();
}

fs::path folder_of(const std::string& name) { return extra_dir() / "models" / name; }

std::string weights_of(const std::string& name) {
  std::string weights;
  std::ifstream(folder_of(name) / "weights.txt") >> weights;
  return weights;
}

ModelFiles files_of(const std::string& name) {
  ModelFiles files = ModelFiles::read(golden_dir(weights_of(name)));
  files.config = Json::parse_file((folder_of(name) / "config.json").string()).value();
  model_of(name).change(files);
  return files;
}

class FamilyConfig : public testing::TestWithParam<std::string> {
 protected:
  FamilyConfig() {
    files_of(GetParam()).write(dir_.path());
    setup_.model_dir = dir_.path();
    const fs::path folder = folder_of(GetParam());
    answers_.push_back(read_golden(folder / "golden.safetensors"));
    for (const std::string& name : folder_names(folder / "adapters")) {
      setup_.adapters.push_back({name, golden_dir(weights_of(GetParam())) / "adapters" / name});
      answers_.push_back(read_golden(folder / "adapters" / name / "golden.safetensors"));
    }
  }
  void expect_answers(GoldenModel& model) const {
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      SCOPED_TRACE("slot " + std::to_string(static_cast<int>(i) - 1));
      expect_golden(model, static_cast<std::int32_t>(i) - 1, answers_[i]);
    }
  }

  TempDir dir_;
  GoldenSetup setup_;
  std::vector<std::vector<GoldenCase>> answers_;  // of the base, then by slot
};

TEST_P(FamilyConfig, HoweverThePromptIsFed) {
  auto model = open_golden(setup_);
  ASSERT_THAT(model, Succeeds());
  expect_answers(*model);
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    const auto slot = static_cast<std::int32_t>(i) - 1;
    const Ids& ids = answers_[i][2].ids;
    const std::vector<float> whole = model->logits(ids, slot, {256});
    EXPECT_EQ(whole, model->logits(ids, slot, {1})) << "slot " << slot;
    EXPECT_EQ(whole, model->logits(ids, slot, {5, 1, 11, 2})) << "slot " << slot;
  }
  // Another model than the golden whose weights it has.
  const GoldenCase own = read_golden(golden_dir(weights_of(GetParam())) / "golden.safetensors")[2];
  const std::vector<float>& logits = answers_[0][2].logits;
  EXPECT_GT(relative_error(std::span(own.logits).first(logits.size()), logits), 0.1);
}

TEST_P(FamilyConfig, OnTheTestDevice) {
  const auto device = make_test_device(std::size_t{64} << 20);
  ASSERT_THAT(device, Succeeds());
  setup_.device = *device;
  auto model = open_golden(setup_);
  ASSERT_THAT(model, Succeeds());
  expect_answers(*model);
}

TEST_P(FamilyConfig, OnTwoRanks) {
  const auto communicators = make_in_process_communicators(2);
  std::vector<GoldenModel> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    setup_.ranks = {.rank = rank, .size = 2};
    setup_.communicator = communicators[static_cast<std::size_t>(rank)].get();
    setup_.threads = 1;
    auto model = open_golden(setup_);
    if (model_of(GetParam()).one_rank) {
      EXPECT_THAT(model, FailsWith(Code::kUnsupported, "use one rank"));
      continue;
    }
    ASSERT_THAT(model, Succeeds());
    ranks.push_back(std::move(model).value());
  }
  std::vector<std::thread> threads;
  for (GoldenModel& model : ranks) threads.emplace_back([&] { expect_answers(model); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Case& model : models()) all.emplace_back(model.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, FamilyConfig, testing::ValuesIn(names()), [](const auto& test) { return test.param; });

// ---- fields ------------------------------------------------------------------------------------------------------

Result<std::vector<float>> longest_logits(const ModelFiles& files, const std::string& name) {
  const TempDir dir;
  files.write(dir.path());
  GoldenSetup setup;
  setup.model_dir = dir.path();
  auto model = open_golden(setup);
  if (!model.ok()) return model.status();
  return model->logits(read_golden(folder_of(name) / "golden.safetensors")[2].ids, -1, {256});
}

struct Field {
  const char *model, *name, *value;
};

// What only some of these fields change must not be met without them.
TEST(FamilyConfigs, EveryFieldCounts) {
  for (const Field& f : std::initializer_list<Field>{
           {"glm4_5_published", "routed_scaling_factor", "1.0"},
           {"glm4_5_published", "partial_rotary_factor", "1.0"},
           {"glm4_5_published", "rope_theta", "10000"},
           {"glm4_5_published", "norm_topk_prob", "false"},
           {"minimax_m2_published", "rotary_dim", "16"},
           {"minimax_m2_published", "rope_theta", "10000"},
           {"hunyuan_a13b_published", "moe_topk", "[2, 2]"},
           {"hunyuan_a13b_published", "moe_topk", "3"},
           {"hunyuan_a13b_published", "rope_scaling", R"({"type": "dynamic", "alpha": 900.0, "factor": 1.0})"},
           {"hunyuan_a13b_published", "rope_scaling", R"({"type": "dynamic", "factor": 1.0})"},
           {"dots1_window", "sliding_window", "6"},
           {"dots1_window", "max_window_layers", "2"},
           {"mixtral_window", "sliding_window", "6"},
           {"phimoe_window", "sliding_window", "6"},
           {"qwen2_moe_window", "sliding_window", "6"},
           {"qwen2_moe_window", "max_window_layers", "0"},
           {"qwen2_moe_window", "layer_types", R"(["sliding_attention", "sliding_attention"])"},
           {"qwen3_moe_window", "sliding_window", "6"}}) {
    SCOPED_TRACE(std::string(f.model) + ": " + f.name + " = " + f.value);
    ModelFiles files = files_of(f.model);
    files.set(f.name, text(f.value));
    const auto got = longest_logits(files, f.model);
    ASSERT_THAT(got, Succeeds());
    const GoldenCase longest = read_golden(folder_of(f.model) / "golden.safetensors")[2];
    EXPECT_GT(relative_error(*got, longest.logits), 10 * kGoldenBound);
  }
}

// Other ways to say the same.
TEST(FamilyConfigs, OtherSpellings) {
  for (const Field& f : std::initializer_list<Field>{
           {"hunyuan_a13b_published", "head_dim", "null"},  // attention_head_dim remains
           {"hunyuan_a13b_published", "num_experts", "[6, 6]"},
           {"hunyuan_a13b_published", "num_shared_expert", "1"},
           {"hunyuan_a13b_published", "moe_intermediate_size", "40"},
           {"hunyuan_a13b_published", "rope_scaling", R"({"rope_type": "dynamic", "alpha": 1000})"},
           {"dots1_window", "layer_types", R"(["full_attention", "sliding_attention", "sliding_attention"])"},
           {"qwen2_moe_window", "layer_types", R"(["sliding_attention", "full_attention"])"},
           {"qwen2_moe_window", "max_window_layers", "1"}}) {
    SCOPED_TRACE(std::string(f.model) + ": " + f.name + " = " + f.value);
    ModelFiles files = files_of(f.model);
    files.set(f.name, text(f.value));
    const auto got = longest_logits(files, f.model);
    ASSERT_THAT(got, Succeeds());
    const GoldenCase longest = read_golden(folder_of(f.model) / "golden.safetensors")[2];
    EXPECT_LE(relative_error(*got, longest.logits), kGoldenBound);
  }
}

// Published configs have a window that the model does not use.
TEST(FamilyConfigs, AWindowThatIsNotSwitchedOn) {
  for (const char* name : {"qwen2_moe_window", "qwen3_moe_window"}) {
    for (const char* value : {"false", "null"}) {
      SCOPED_TRACE(name);
      ModelFiles files = files_of(name);
      files.set("use_sliding_window", text(value));
      const auto got = longest_logits(files, name);
      ASSERT_THAT(got, Succeeds());
      const GoldenCase own = read_golden(golden_dir(weights_of(name)) / "golden.safetensors")[2];
      EXPECT_LE(relative_error(*got, std::span(own.logits).first(got->size())), kGoldenBound);
    }
  }
}

// A family that knows a window, or chunks, has a golden that reaches beyond it, while a prompt is read and in the
// answer.
TEST(FamilyConfigs, EveryWindowIsCrossed) {
  const std::map<std::string, const char*> proofs = {
      {"dots1", "dots1_window"},           {"gemma4_text", "gemma4_published"}, {"gpt_oss", "gpt_oss_published"},
      {"llama4_text", "llama4_published"}, {"mixtral", "mixtral_window"},       {"phimoe", "phimoe_window"},
      {"qwen2_moe", "qwen2_moe_window"},   {"qwen3_moe", "qwen3_moe_window"}};
  for (const std::string& golden : golden_models()) {
    SCOPED_TRACE(golden);
    ModelFiles files = ModelFiles::read(golden_dir(golden));
    const std::string family = files.config.get_string("model_type").value();
    files.set(family == "llama4_text" ? "attention_chunk_size" : "sliding_window", 2);
    if (family != "llama4_text" && family != "gemma4_text") files.set("use_sliding_window", true);
    if (family == "dots1" || family == "qwen2_moe") {
      files.set("max_window_layers", 1);
      files.remove("layer_types");
    }
    const TempDir dir;
    files.write(dir.path());
    auto model = open_golden({.model_dir = dir.path()});
    if (!proofs.contains(family)) {
      EXPECT_THAT(model, FailsWith(Code::kUnsupported, "'sliding_window'"));
      continue;
    }
    ASSERT_THAT(model, Succeeds());
    const GoldenCase longest = read_golden(golden_dir(golden) / "golden.safetensors")[2];
    const double error = relative_error(model->logits(longest.ids, -1, {256}), longest.logits);
    EXPECT_GT(error, kGoldenBound);
  }
  for (const auto& [family, name] : proofs) {
    SCOPED_TRACE(name);
    const Json config = Json::parse_file((folder_of(name) / "config.json").string()).value();
    const auto reach = static_cast<std::size_t>(
        config.get_int(family == "llama4_text" ? "attention_chunk_size" : "sliding_window").value());
    const std::vector<GoldenCase> cases = read_golden(folder_of(name) / "golden.safetensors");
    EXPECT_EQ(config.get_string("model_type").value(), family);
    EXPECT_GT(cases[2].ids.size(), 2 * reach);
    EXPECT_LT(cases[0].ids.size(), reach);
    EXPECT_GT(cases[0].ids.size() + cases[0].greedy.size(), reach);
  }
}

TEST(FamilyConfigs, FieldsThatMeanAnotherModelAreRefused) {
  for (const Field& f : std::initializer_list<Field>{{"minimax_m2_published", "scoring_func", R"("softmax")"},
                                                     {"minimax_m2_published", "qk_norm_type", R"("per_head")"},
                                                     {"minimax_m2_published", "use_qk_norm", "false"},
                                                     {"minimax_m2_published", "use_routing_bias", "false"},
                                                     {"minimax_m2_published", "attn_type_list", "[1, 0]"},
                                                     {"minimax_m2_published", "shared_intermediate_size", "32"},
                                                     {"minimax_m2_published", "layernorm_mlp_beta", "3.5"},
                                                     {"minimax_m2_published", "layernorm_full_attention_beta", "3.5"},
                                                     {"hunyuan_a13b_published", "use_cla", "true"},
                                                     {"hunyuan_a13b_published", "use_mla", "true"},
                                                     {"hunyuan_a13b_published", "mlp_bias", "true"},
                                                     {"hunyuan_a13b_published", "use_qk_norm", "false"},
                                                     {"hunyuan_a13b_published", "use_rotary_pos_emb", "false"},
                                                     {"hunyuan_a13b_published", "use_mixed_mlp_moe", "false"},
                                                     {"hunyuan_a13b_published", "group_limited_greedy", "true"},
                                                     {"hunyuan_a13b_published", "position_embedding_xdrope", "true"},
                                                     {"hunyuan_a13b_published", "norm_type", R"("layer")"},
                                                     {"hunyuan_a13b_published", "num_shared_expert", "[1, 2]"}}) {
    ModelFiles files = files_of(f.model);
    files.set(f.name, text(f.value));
    EXPECT_THAT(longest_logits(files, f.model), FailsWith(Code::kUnsupported, "'" + std::string(f.name) + "'"))
        << f.model;
  }
  ModelFiles hunyuan = files_of("hunyuan_a13b_published");
  hunyuan.set("rope_scaling", text(R"({"type": "dynamic", "alpha": 0})"));
  EXPECT_THAT(longest_logits(hunyuan, "hunyuan_a13b_published"),
              FailsWith(Code::kInvalidFile, "'rope_scaling.alpha' is 0"));
}

}  // namespace
}  // namespace cadre::test
