// Qwen3-Next, Qwen3.5-MoE and LFM2-MoE: checkpoints as they are published, and configs that are refused.
#include <gtest/gtest.h>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

Json parsed(const char* json) { return Json::parse(json, "test").value(); }

// The folder gives the logits of the golden, bit for bit as the golden's own folder does.
void expect_same(const std::filesystem::path& dir, const std::string& golden) {
  auto model = open_golden({.model_dir = dir});
  ASSERT_THAT(model, Succeeds());
  auto own = open_golden({.model_dir = golden_dir(golden)});
  ASSERT_THAT(own, Succeeds());
  const auto answers = read_golden(golden_dir(golden) / "golden.safetensors");
  expect_golden(*model, -1, answers);
  EXPECT_EQ(model->logits(answers[2].ids, -1, {256}), own->logits(answers[2].ids, -1, {256}));
}

HostTensor unused_tensor() {
  return {.dtype = DType::kBF16, .shape = {4, 4}, .bytes = std::vector<std::byte>(4 * 4 * 2)};
}

TEST(Qwen3Next, ConfigOfVersion4AndDraftLayers) {
  ModelFiles files = ModelFiles::read(golden_dir("qwen3_next"));
  // What the class has defaults for: a quarter of each head rotated, every fourth layer attention, renormalised.
  for (const char* key : {"layer_types", "rope_parameters", "partial_rotary_factor", "norm_topk_prob"}) {
    files.remove(key);
  }
  files.set("rope_theta", 10000);
  files.set("rope_scaling", nullptr);
  files.set("full_attention_interval", 4);
  files.tensors["mtp.layers.0.mlp.gate.weight"] = unused_tensor();
  const TempDir dir;
  files.write(dir.path());
  expect_same(dir.path(), "qwen3_next");
}

TEST(Qwen35Moe, StackedExpertsAndWhatIsNotText) {
  ModelFiles files = ModelFiles::read(golden_dir("qwen3_5_moe_text"));
  stack_experts(files, {"gate_proj", "up_proj"}, "down_proj", "gate_up_proj");
  files.set("mlp_only_layers", parsed("[]"));
  files.set("attn_output_gate", true);
  files.set("rope_parameters", parsed(R"({"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25,
                                          "mrope_interleaved": true, "mrope_section": [1, 1, 0]})"));
  files.tensors["mtp.fc.weight"] = unused_tensor();
  files.tensors["model.visual.blocks.0.attn.qkv.weight"] = unused_tensor();
  const TempDir dir;
  files.write(dir.path());
  expect_same(dir.path(), "qwen3_5_moe_text");
}

// Its own; others add nothing that counts. tests/data/extra/routing shows what it does to small scores.
TEST(Lfm2Moe, TheSumOfTheWeightsHasAnEpsilon) {
  for (const bool renormalised : {true, false}) {
    ModelFiles files = ModelFiles::read(golden_dir("lfm2_moe"));
    files.set("norm_topk_prob", renormalised);
    const TempDir dir;
    files.write(dir.path());
    auto model = open_golden({.model_dir = dir.path()});
    ASSERT_THAT(model, Succeeds());
    for (const LayerSelection& s : model->runner->model().selections()) {
      EXPECT_EQ(s.spec.routing.sum_epsilon, renormalised ? 1e-6f : 0.0f);
    }
  }
}

TEST(Lfm2Moe, StackedExpertsAndRopeOfVersion4) {
  ModelFiles files = ModelFiles::read(golden_dir("lfm2_moe"));
  stack_experts(files, {"w1", "w3"}, "w2", "gate_up_proj");
  files.remove("rope_parameters");
  files.set("rope_theta", 1000000.0);
  const TempDir dir;
  files.write(dir.path());
  expect_same(dir.path(), "lfm2_moe");
}

// ---- refusals ---------------------------------------------------------------------------------------------------

// The golden with one field changed; null removes it.
Result<std::unique_ptr<Model>> load_with(const std::string& golden, const std::string& key, const Json& value,
                                         const Ranks& ranks = {}) {
  ModelFiles files;
  files.config = Json::parse_file((golden_dir(golden) / "config.json").string()).value();
  if (value.is_null()) {
    files.remove(key);
  } else {
    files.set(key, value);
  }
  const TempDir dir;
  std::filesystem::create_symlink(golden_dir(golden) / "model.safetensors", dir / "model.safetensors");
  files.write_config(dir.path());
  ModelOptions options;
  options.dir = dir.path();
  options.device = make_cpu_device();
  options.ranks = ranks;
  return Model::load(options);
}

TEST(RecurrentFamilies, LayerKinds) {
  EXPECT_THAT(load_with("qwen3_next", "layer_types", parsed(R"(["linear_attention", "full_attention"])")),
              FailsWith(Code::kInvalidFile, "'layer_types' has 2 layers, want 4 by num_hidden_layers"));
  EXPECT_THAT(load_with("qwen3_next", "layer_types", parsed(R"(["conv", "conv", "conv", "full_attention"])")),
              FailsWith(Code::kUnsupported, "'conv', want linear_attention or full_attention"));
  EXPECT_THAT(load_with("lfm2_moe", "layer_types", parsed(R"(["conv", "mamba", "conv", "full_attention"])")),
              FailsWith(Code::kUnsupported, "'mamba', want conv or full_attention"));
  EXPECT_THAT(load_with("lfm2_moe", "layer_types", parsed(R"(["conv"])")),
              FailsWith(Code::kInvalidFile, "'layer_types' has 1 layers, want 4"));
  EXPECT_THAT(load_with("lfm2_moe", "layer_types", nullptr), FailsWith(Code::kInvalidFile, "'layer_types'"));
}

TEST(RecurrentFamilies, FieldsThatChangeTheMathematics) {
  EXPECT_THAT(load_with("qwen3_next", "attn_output_gate", false), FailsWith(Code::kUnsupported, "'attn_output_gate'"));
  EXPECT_THAT(load_with("qwen3_next", "hidden_act", "gelu"),
              FailsWith(Code::kUnsupported, "'hidden_act': gated delta nets are run with silu only"));
  EXPECT_THAT(load_with("qwen3_5_moe_text", "norm_topk_prob", false),
              FailsWith(Code::kUnsupported, "'norm_topk_prob' is false"));
  EXPECT_THAT(load_with("qwen3_5_moe_text", "mlp_only_layers", parsed("[0]")),
              FailsWith(Code::kUnsupported, "'mlp_only_layers' makes some layers dense"));
  EXPECT_THAT(load_with("qwen3_5_moe_text", "decoder_sparse_step", 2),
              FailsWith(Code::kUnsupported, "'decoder_sparse_step' makes some layers dense"));
}

TEST(RecurrentFamilies, Sizes) {
  EXPECT_THAT(
      load_with("qwen3_next", "linear_num_key_heads", 3),
      FailsWith(Code::kInvalidFile, "'linear_num_value_heads' is 4, want a multiple of linear_num_key_heads 3"));
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      EXPECT_THAT(load_with("qwen3_next", key, bad), FailsWith(Code::kInvalidFile, std::string("'") + key + "' is "));
    }
  }
  EXPECT_THAT(load_with("lfm2_moe", "conv_L_cache", 1), FailsWith(Code::kInvalidFile, "'conv_L_cache' is 1"));
}

TEST(RecurrentFamilies, RanksThatDoNotDivide) {
  // Four value heads could be divided over four ranks, the two key heads that they share cannot.
  EXPECT_THAT(load_with("qwen3_5_moe_text", "linear_num_value_heads", 4, {.rank = 0, .size = 4}),
              FailsWith(Code::kUnsupported, "linear_num_key_heads is 2, which cannot be divided over 4 ranks"));
  EXPECT_THAT(load_with("lfm2_moe", "conv_L_cache", 3, {.rank = 0, .size = 3}),
              FailsWith(Code::kUnsupported, "hidden_size is 64, which cannot be divided over 3 ranks"));
}

}  // namespace
}  // namespace cadre::test
