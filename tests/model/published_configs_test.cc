// gpt-oss, Phi-3.5-MoE and the Granite families beyond the goldens: configs as they are published, adapters on modules
// that the goldens leave alone, and what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/exec_fixture.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

Json text(const char* json) { return Json::parse(json, "test").value(); }

ModelFiles golden_files(const std::string& model) { return ModelFiles::read(golden_dir(model)); }

// ---- published configs -------------------------------------------------------------------------------------------

struct Published {
  const char* name;
  bool whole;          // the rotation depends on the length
  const char* unused;  // part of the names of tensors that this config has no place for
};

class PublishedConfig : public testing::TestWithParam<Published> {
 protected:
  PublishedConfig() {
    const fs::path folder = extra_dir() / "models" / GetParam().name;
    std::ifstream(folder / "weights.txt") >> weights_;
    ModelFiles files = golden_files(weights_);
    files.config = Json::parse_file((folder / "config.json").string()).value();
    if (GetParam().unused != nullptr) erase_tensors(files, GetParam().unused);
    files.write(dir_.path());
    answers_ = read_golden(folder / "golden.safetensors");
  }
  TempDir dir_;
  std::string weights_;
  std::vector<GoldenCase> answers_;
};

TEST_P(PublishedConfig, GivesTheGoldenLogits) {
  auto model = open_golden({.model_dir = dir_.path()});
  ASSERT_THAT(model, Succeeds());
  expect_golden(*model, -1, answers_, GetParam().whole);
  const auto length = static_cast<std::int64_t>(answers_[2].ids.size());
  EXPECT_EQ(model->logits(answers_[2].ids, -1, {256}, length),
            model->logits(answers_[2].ids, -1, {5, 1, 17, 2}, length));
  // Another model than the golden whose weights it has.
  const auto own = read_golden(golden_dir(weights_) / "golden.safetensors");
  EXPECT_GT(relative_error(answers_[2].logits, own[2].logits), 0.1);
}

TEST_P(PublishedConfig, OnTwoRanks) {
  const auto communicators = make_in_process_communicators(2);
  std::vector<GoldenModel> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    auto model = open_golden({.model_dir = dir_.path(),
                              .ranks = {.rank = rank, .size = 2},
                              .communicator = communicators[static_cast<std::size_t>(rank)].get(),
                              .threads = 1});
    ASSERT_THAT(model, Succeeds());
    ranks.push_back(std::move(model).value());
  }
  std::vector<std::thread> threads;
  for (GoldenModel& model : ranks) {
    threads.emplace_back([&] { expect_golden(model, -1, answers_, GetParam().whole); });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedConfig,
                         testing::Values(Published{"gpt_oss_published", false, nullptr},
                                         Published{"phimoe_longrope", true, nullptr},
                                         Published{"granite_dense", false, ".block_sparse_moe."}),
                         [](const auto& test) { return test.param.name; });

// What only some of these fields change must not be met without them.
TEST(PublishedConfigs, EveryFieldCounts) {
  struct Case {
    const char *name, *field, *value;
  };
  for (const Case& c : std::initializer_list<Case>{{"gpt_oss_published", "swiglu_limit", "0.5"},
                                                   {"gpt_oss_published", "sliding_window", "6"},
                                                   {"granite_dense", "time_step_limit", "[0, 1000]"},
                                                   {"granite_dense", "position_embedding_type", "null"},
                                                   {"granite_dense", "attention_multiplier", "0.25"},
                                                   {"granite_dense", "embedding_multiplier", "11"},
                                                   {"granite_dense", "residual_multiplier", "0.3"},
                                                   {"granite_dense", "logits_scaling", "3.1"}}) {
    SCOPED_TRACE(c.field);
    const fs::path folder = extra_dir() / "models" / c.name;
    const bool granite = std::string_view(c.name) == "granite_dense";
    ModelFiles files = golden_files(granite ? "granitemoehybrid" : "gpt_oss");
    if (granite) erase_tensors(files, ".block_sparse_moe.");
    files.config = Json::parse_file((folder / "config.json").string()).value();
    files.set(c.field, text(c.value));
    const TempDir dir;
    files.write(dir.path());
    auto model = open_golden({.model_dir = dir.path()});
    ASSERT_THAT(model, Succeeds());
    const GoldenCase longest = read_golden(folder / "golden.safetensors")[2];
    EXPECT_GT(relative_error(model->logits(longest.ids, -1, {256}), longest.logits), 10 * kGoldenBound);
  }
}

// ---- other spellings of the same model ---------------------------------------------------------------------------

// The files give the golden's own bits, base and adapters.
void expect_same_bits(const ModelFiles& files, const std::string& golden) {
  const TempDir dir;
  files.write(dir.path());
  GoldenSetup setup{.model_dir = dir.path()};
  for (const std::string& name : golden_adapters(golden)) {
    setup.adapters.emplace_back(name, golden_dir(golden) / "adapters" / name);
  }
  auto changed = open_golden(setup);
  ASSERT_THAT(changed, Succeeds());
  setup.model_dir = golden_dir(golden);
  auto own = open_golden(setup);
  ASSERT_THAT(own, Succeeds());
  const Ids ids = read_golden(golden_dir(golden) / "golden.safetensors")[2].ids;
  for (std::int32_t slot = -1; slot < static_cast<std::int32_t>(setup.adapters.size()); ++slot) {
    EXPECT_EQ(changed->logits(ids, slot, {256}), own->logits(ids, slot, {256})) << "slot " << slot;
  }
}

TEST(Spellings, GptOssConfig) {
  ModelFiles files = golden_files("gpt_oss");
  files.set("rope_scaling", *files.config.find("rope_parameters"));
  files.set("rope_theta", 150000);
  files.remove("rope_parameters");
  files.set("experts_per_token", 2);
  files.remove("num_experts_per_tok");
  files.set("num_experts", 8);
  files.remove("num_local_experts");
  files.remove("layer_types");  // sliding first, then full, in turn
  files.remove("attention_bias");
  expect_same_bits(files, "gpt_oss");
}

TEST(Spellings, GraniteHybridConfigOfVersion4) {
  ModelFiles files = golden_files("granitemoehybrid");
  files.set("layers_block_type", text(R"(["mamba", "attention"])"));
  files.remove("layer_types");
  files.set("mamba_d_head", "auto");
  files.set("position_embedding_type", "nope");
  files.set("normalization_function", "rmsnorm");
  files.remove("time_step_limit");
  expect_same_bits(files, "granitemoehybrid");
}

// ---- adapters on modules that the goldens' adapters leave alone --------------------------------------------------

struct AdaptedModule {
  std::string file, tensor;  // the module as the adapter's file names it, and the tensor it changes
};

// An adapter of rank 2 on these modules, and the model with the adapter added to its weights, all in float32.
void write_adapter(const ModelFiles& files, const std::vector<AdaptedModule>& modules, const fs::path& adapter,
                   const fs::path& merged_dir) {
  ModelFiles merged = files;
  for (auto& [name, tensor] : merged.tensors) tensor = converted(tensor, DType::kF32);
  ModelFiles lora;
  std::string targets;
  unsigned seed = 7;
  for (const AdaptedModule& module : modules) {
    HostTensor& weight = merged.tensors.at(module.tensor);
    const std::int64_t out = weight.shape[0], in = weight.shape[1], r = 2;
    const Floats a = random_floats(seed++, r * in, 0.3f);
    const Floats b = random_floats(seed++, out * r, 0.3f);
    Floats sum = weight.values();
    for (std::int64_t i = 0; i < out; ++i) {
      for (std::int64_t j = 0; j < in; ++j) {
        for (std::int64_t k = 0; k < r; ++k) {
          sum[static_cast<std::size_t>(i * in + j)] +=
              2 * b[static_cast<std::size_t>(i * r + k)] * a[static_cast<std::size_t>(k * in + j)];
        }
      }
    }
    weight.bytes = to_bytes(DType::kF32, sum);
    const std::string prefix = "base_model.model." + module.file;
    lora.tensors[prefix + ".lora_A.weight"] = {DType::kF32, {r, in}, to_bytes(DType::kF32, a)};
    lora.tensors[prefix + ".lora_B.weight"] = {DType::kF32, {out, r}, to_bytes(DType::kF32, b)};
    targets += (targets.empty() ? "\"" : ", \"") + module.file.substr(module.file.rfind('.') + 1) + "\"";
  }
  merged.write(merged_dir);
  fs::create_directories(adapter);
  lora.write_weights(adapter / "adapter_model.safetensors");
  std::ofstream(adapter / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": [)" << targets << "]}";
}

void expect_as_merged(const std::string& golden, const std::vector<AdaptedModule>& modules) {
  const TempDir dir;
  write_adapter(golden_files(golden), modules, dir / "adapter", dir / "merged");
  auto merged = open_golden({.model_dir = dir / "merged"});
  ASSERT_THAT(merged, Succeeds());
  const Ids ids = read_golden(golden_dir(golden) / "golden.safetensors")[2].ids;
  const std::vector<float> want = merged->logits(ids, -1, {256});
  const GoldenSetup setup{.model_dir = golden_dir(golden), .adapters = {{"one", dir / "adapter"}}};
  auto adapted = open_golden(setup);
  ASSERT_THAT(adapted, Succeeds());
  EXPECT_LE(relative_error(adapted->logits(ids, 0, {256}), want), kGoldenBound);
  EXPECT_GT(relative_error(adapted->logits(ids, -1, {256}), want), 0.01);

  const auto communicators = make_in_process_communicators(2);
  std::vector<GoldenModel> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    GoldenSetup part = setup;
    part.ranks = {.rank = rank, .size = 2};
    part.communicator = communicators[static_cast<std::size_t>(rank)].get();
    part.threads = 1;
    auto model = open_golden(part);
    ASSERT_THAT(model, Succeeds());
    ranks.push_back(std::move(model).value());
  }
  std::vector<std::thread> threads;
  for (GoldenModel& model : ranks) {
    threads.emplace_back([&] { EXPECT_LE(relative_error(model.logits(ids, 0, {256}), want), kGoldenBound); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(AdaptedModules, GraniteSharedAndMamba) {
  std::vector<AdaptedModule> modules;
  for (const char* name : {"model.layers.0.shared_mlp.input_linear", "model.layers.1.shared_mlp.output_linear",
                           "model.layers.0.mamba.in_proj", "model.layers.0.mamba.out_proj"}) {
    modules.push_back({name, std::string(name) + ".weight"});
  }
  expect_as_merged("granitemoehybrid", modules);
}

// The router, named as either version of transformers does.
TEST(AdaptedModules, Routers) {
  for (const char* name : {"router", "router.layer"}) {
    SCOPED_TRACE(name);
    const std::string moe = "model.layers.1.block_sparse_moe.";
    expect_as_merged("granitemoe", {{moe + name, moe + "router.layer.weight"}});
  }
  for (const char* name : {"model.layers.1.mlp.router", "model.layers.1.block_sparse_moe.gate"}) {
    SCOPED_TRACE(name);
    expect_as_merged("phimoe", {{name, "model.layers.1.block_sparse_moe.gate.weight"}});
  }
  expect_as_merged("gpt_oss", {{"model.layers.0.mlp.router", "model.layers.0.mlp.router.weight"}});
}

// ---- what is refused ---------------------------------------------------------------------------------------------

Status load(const ModelFiles& files) {
  const TempDir dir;
  files.write(dir.path());
  ModelOptions options;
  options.dir = dir.path();
  options.device = make_cpu_device();
  return Model::load(options).status();
}

TEST(Refused, FieldsThatChangeTheMathematics) {
  struct Case {
    const char *model, *field, *value;
    Code code;
    const char* says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"gpt_oss", "hidden_act", R"("gelu")", Code::kUnsupported, "'hidden_act'"},
           {"gpt_oss", "layer_types", R"(["full_attention", "chunked_attention"])", Code::kUnsupported,
            "chunked_attention"},
           {"gpt_oss", "layer_types", R"(["full_attention"])", Code::kInvalidFile, "'layer_types'"},
           {"gpt_oss", "swiglu_limit", "0", Code::kInvalidFile, "'swiglu_limit'"},
           {"gpt_oss", "rope_parameters", "null", Code::kInvalidFile, "'rope_scaling'"},
           {"gpt_oss", "rope_parameters", R"({"rope_type": "default"})", Code::kInvalidFile, "'rope_theta'"},
           {"gpt_oss", "rms_norm_eps", "null", Code::kInvalidFile, "'rms_norm_eps'"},
           {"gpt_oss", "num_experts_per_tok", "9", Code::kInvalidFile, "'num_experts_per_tok' is 9"},
           {"phimoe", "router_jitter_noise", "0.1", Code::kUnsupported, "'router_jitter_noise' is 0.1"},
           {"phimoe", "num_experts_per_tok", "1", Code::kUnsupported, "'num_experts_per_tok' is 1"},
           {"phimoe", "rope_parameters", "null", Code::kInvalidFile, "'rope_theta'"},
           {"phimoe", "rope_parameters",
            R"({"rope_type": "yarn", "factor": 2, "rope_theta": 1e4, "short_mscale": 1, "long_mscale": 1.5})",
            Code::kUnsupported, "long_mscale"},
           {"phimoe", "rope_parameters", R"({"rope_type": "yarn", "factor": 2, "rope_theta": 1e4})", Code::kInvalidFile,
            "short_mscale"},
           {"phimoe", "rope_parameters",
            R"({"rope_type": "yarn", "factor": 2, "rope_theta": 1e4, "short_mscale": -1, "long_mscale": -1})",
            Code::kInvalidFile, "short_mscale"},
           {"phimoe", "rope_parameters",
            R"({"rope_type": "linear", "factor": 2, "rope_theta": 1e4, "short_mscale": 1, "long_mscale": 1})",
            Code::kUnsupported, "'linear'"},
           {"granitemoe", "attention_multiplier", "0", Code::kInvalidFile, "'attention_multiplier'"},
           {"granitemoe", "logits_scaling", "0", Code::kInvalidFile, "'logits_scaling'"},
           {"granitemoe", "num_local_experts", "0", Code::kInvalidFile, "'num_local_experts'"},
           {"granitemoehybrid", "position_embedding_type", R"("alibi")", Code::kUnsupported, "'alibi'"},
           {"granitemoehybrid", "normalization_function", R"("layernorm")", Code::kUnsupported, "'layernorm'"},
           {"granitemoehybrid", "hidden_act", R"("gelu")", Code::kUnsupported, "silu only"},
           {"granitemoehybrid", "layer_types", R"(["mamba", "conv"])", Code::kUnsupported, "'conv'"},
           {"granitemoehybrid", "layer_types", R"(["mamba"])", Code::kInvalidFile, "'layer_types' has 1"},
           {"granitemoehybrid", "mamba_d_head", "8", Code::kInvalidFile, "mamba_expand times hidden_size"},
           {"granitemoehybrid", "mamba_n_groups", "3", Code::kInvalidFile, "mamba_n_groups 3"},
           {"granitemoehybrid", "time_step_limit", "[0.5, 0.1]", Code::kInvalidFile, "'time_step_limit'"},
           {"nemotron_h", "sliding_window", "5", Code::kUnsupported, "'sliding_window' is 5"},
           {"granitemoehybrid", "time_step_limit", "[0.5]", Code::kInvalidFile, "'time_step_limit'"}}) {
    ModelFiles files = golden_files(c.model);
    files.set(c.field, text(c.value));
    EXPECT_THAT(load(files), FailsWith(c.code, c.says)) << c.model << ": " << c.field << " = " << c.value;
  }
  ModelFiles nothing = golden_files("granitemoehybrid");
  nothing.set("num_local_experts", 0);
  nothing.set("shared_intermediate_size", 0);
  EXPECT_THAT(load(nothing), FailsWith(Code::kInvalidFile, "'num_local_experts' is 0"));
}

// Tensors that the config promises and the files lack, and the other way round.
TEST(Refused, TensorsThatDoNotMatchTheConfig) {
  struct Case {
    const char *model, *tensor;
  };
  for (const Case& c :
       std::initializer_list<Case>{{"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj_bias"},
                                   {"gpt_oss", "model.layers.1.mlp.experts.down_proj_bias"},
                                   {"gpt_oss", "model.layers.1.mlp.router.bias"},
                                   {"gpt_oss", "model.layers.0.self_attn.sinks"},
                                   {"phimoe", "model.layers.0.input_layernorm.bias"},
                                   {"phimoe", "model.norm.bias"},
                                   {"phimoe", "lm_head.bias"},
                                   {"granitemoeshared", "model.layers.0.shared_mlp.input_linear.weight"},
                                   {"granitemoe", "model.layers.1.block_sparse_moe.output_linear.weight"},
                                   {"granitemoehybrid", "model.layers.0.mamba.dt_bias"}}) {
    ModelFiles files = golden_files(c.model);
    ASSERT_EQ(files.tensors.erase(c.tensor), 1u) << c.tensor;
    EXPECT_THAT(load(files), FailsWith(Code::kInvalidFile, c.tensor));
  }
  ModelFiles files = golden_files("granitemoeshared");
  files.set("shared_intermediate_size", 0);
  EXPECT_THAT(load(files), FailsWith(Code::kInvalidFile, "shared_mlp"));
}

}  // namespace
}  // namespace cadre::test
