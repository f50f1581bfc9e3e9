// Multimodal checkpoints: the text part runs under every way of naming it, the rest is counted and left alone.
#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

struct Style {
  std::string name, model, outer, key;
  // What the golden's "model." becomes, and its "lm_head.".
  std::string body, head;
  std::vector<std::string> others;  // tensors beside the text part
};

class Wrapper : public testing::TestWithParam<Style> {
 protected:
  // The golden inside a wrapper.
  ModelFiles wrapped() const {
    const Style& style = GetParam();
    const ModelFiles plain = ModelFiles::read(golden_dir(style.model));
    ModelFiles out;
    out.config = Json::object({{"model_type", Json(style.outer)},
                               {style.key, plain.config},
                               {"vision_config", Json::object({{"model_type", "vision"}, {"hidden_size", 8}})}});
    for (const auto& [name, tensor] : plain.tensors) {
      const bool body = name.starts_with("model.");
      out.tensors[body ? style.body + name.substr(6) : style.head + name.substr(8)] = tensor;
    }
    for (const std::string& name : style.others) {
      out.tensors[name] = {DType::kF32, {2}, std::vector<std::byte>(8)};
    }
    return out;
  }
  // An adapter's folder whose tensors are named as the wrapper's.
  void write_adapter(const fs::path& from, const fs::path& to) const {
    const Style& style = GetParam();
    fs::create_directories(to);
    fs::copy_file(from / "adapter_config.json", to / "adapter_config.json");
    const auto file = SafetensorsFile::open(from / "adapter_model.safetensors");
    ASSERT_THAT(file, Succeeds());
    std::vector<NamedTensor> tensors;
    const std::string before = "base_model.model.model.", after = "base_model.model." + style.body;
    for (const TensorInfo& tensor : (*file)->tensors()) {
      ASSERT_TRUE(tensor.name.starts_with(before)) << tensor.name;
      tensors.push_back({after + tensor.name.substr(before.size()), tensor.dtype, tensor.shape, tensor.bytes()});
    }
    ASSERT_THAT(write_safetensors(to / "adapter_model.safetensors", tensors), Succeeds());
  }
  TempDir dir_;
};

TEST_P(Wrapper, GivesTheTextPartsAnswers) {
  const Style& style = GetParam();
  wrapped().write(dir_ / "model");
  const fs::path adapter = golden_dir(style.model) / "adapters/experts";
  write_adapter(adapter, dir_ / "adapter");
  // The adapter under the wrapper's names, and as it was written for the text part alone.
  auto model =
      open_golden({.model_dir = dir_ / "model", .adapters = {{"renamed", dir_ / "adapter"}, {"plain", adapter}}});
  ASSERT_THAT(model, Succeeds());
  expect_golden(*model, -1, read_golden(golden_dir(style.model) / "golden.safetensors"));
  const auto with_adapter = read_golden(adapter / "golden.safetensors");
  expect_golden(*model, 0, with_adapter);
  expect_golden(*model, 1, with_adapter);
  std::string notes;
  for (const std::string& note : model->runner->model().notes()) notes += note + "\n";
  EXPECT_NE(notes.find("of this " + style.outer + " model is used; " + std::to_string(style.others.size()) +
                       " tensors beside it are not read ("),
            std::string::npos)
      << notes;
  EXPECT_EQ(std::count(notes.begin(), notes.end(), '\n'), 1) << notes;
}

// What is not read is not counted either.
TEST_P(Wrapper, MemoryIsTheTextParts) {
  const auto open = [](const fs::path& dir) {
    EngineOptions options;
    options.model_dir = dir;
    options.need_tokenizer = false;
    options.threads = 1;
    options.max_num_seqs = 1;
    options.backend = {.kind = PolicyKind::kRequire, .names = {"cpu_reference"}};
    return Engine::open(options);
  };
  wrapped().write(dir_.path());
  const auto whole = open(dir_.path()), text = open(golden_dir(GetParam().model));
  ASSERT_THAT(whole, Succeeds());
  ASSERT_THAT(text, Succeeds());
  EXPECT_EQ((*whole)->memory().weights, (*text)->memory().weights);
  EXPECT_EQ((*whole)->model_type(), (*text)->model_type());
}

// An adapter made for the wrapper also serves the text model exported alone.
TEST_P(Wrapper, AdaptersServeTheTextModelAlone) {
  const Style& style = GetParam();
  const fs::path adapter = golden_dir(style.model) / "adapters/experts";
  write_adapter(adapter, dir_ / "adapter");
  auto model = open_golden({.model_dir = golden_dir(style.model), .adapters = {{"renamed", dir_ / "adapter"}}});
  ASSERT_THAT(model, Succeeds());
  expect_golden(*model, 0, read_golden(adapter / "golden.safetensors"));
}

TEST_P(Wrapper, WhatTheTextPartLacksIsRefused) {
  ModelFiles files = wrapped();
  files.tensors.erase(GetParam().body + "layers.1.input_layernorm.weight");
  files.write(dir_.path());
  EXPECT_THAT(open_golden({.model_dir = dir_.path()}),
              FailsWith(Code::kInvalidFile, "'model.layers.1.input_layernorm.weight' is missing"));
  files = wrapped();
  files.tensors[GetParam().body + "layers.1.strange.weight"] = {DType::kF32, {2}, std::vector<std::byte>(8)};
  files.write(dir_.path());
  EXPECT_THAT(open_golden({.model_dir = dir_.path()}), FailsWith(Code::kInvalidFile, "layers.1.strange.weight"));
}

INSTANTIATE_TEST_SUITE_P(Styles, Wrapper,
                         testing::Values(Style{"qwen3_5",
                                               "qwen3_5_moe_text",
                                               "qwen3_5_moe",
                                               "text_config",
                                               "model.language_model.",
                                               "lm_head.",
                                               {"model.visual.blocks.0.norm.weight", "model.visual.merger.bias",
                                                "mtp.fc.weight"}},
                                         Style{"llama4",
                                               "llama4_text",
                                               "llama4",
                                               "text_config",
                                               "language_model.model.",
                                               "language_model.lm_head.",
                                               {"vision_model.a", "multi_modal_projector.b.weight"}},
                                         Style{"gemma4",
                                               "gemma4_text",
                                               "gemma4",
                                               "text_config",
                                               "model.language_model.",
                                               "lm_head.",
                                               {"model.vision_tower.a", "model.embed_vision.b", "model.audio_tower.c"}},
                                         Style{"kimi_vl",
                                               "deepseek_v3",
                                               "kimi_vl",
                                               "text_config",
                                               "language_model.model.",
                                               "language_model.lm_head.",
                                               {"vision_tower.a", "multi_modal_projector.b.weight"}},
                                         Style{"internvl",
                                               "qwen3_moe",
                                               "internvl_chat",
                                               "llm_config",
                                               "language_model.model.",
                                               "language_model.lm_head.",
                                               {"vision_model.a", "mlp1.0.weight"}},
                                         Style{"no_prefix",
                                               "qwen3_moe",
                                               "some_vl",
                                               "text_config",
                                               "model.",
                                               "lm_head.",
                                               {"model.visual.a", "visual.b", "model.multi_modal_projector.c"}}),
                         [](const testing::TestParamInfo<Style>& test) { return test.param.name; });

class WrapperConfig : public testing::Test {
 protected:
  Result<ModelConfig> parse(std::vector<Json::Member> inner, std::vector<Json::Member> outer = {}) {
    std::vector<Json::Member> text = {{"hidden_size", 8}, {"vocab_size", 9}};
    text.insert(text.end(), inner.begin(), inner.end());
    std::vector<Json::Member> all = {{"model_type", "qwen3_5_moe"}, {"text_config", Json::object(std::move(text))}};
    all.insert(all.end(), outer.begin(), outer.end());
    return parse_model_config(Json::object(std::move(all)));
  }
};

TEST_F(WrapperConfig, TheTextPartsFieldsCount) {
  const auto config =
      parse({{"model_type", "qwen3_moe"}, {"eos_token_id", 3}}, {{"hidden_size", 99}, {"eos_token_id", 5}});
  ASSERT_THAT(config, Succeeds());
  EXPECT_EQ(config->model_type, "qwen3_moe");
  EXPECT_EQ(config->wrapper, "qwen3_5_moe");
  EXPECT_EQ(config->hidden, 8);
  EXPECT_EQ(config->eos_ids, std::vector<std::int32_t>{3});
}

TEST_F(WrapperConfig, WhatIsSaidOutsideOnly) {
  const auto config = parse({}, {{"eos_token_id", Json::array(std::vector<std::int64_t>{5, 6})},
                                 {"tie_word_embeddings", true},
                                 {"quantization_config", Json::object({{"quant_method", "fp8"}})}});
  ASSERT_THAT(config, Succeeds());
  EXPECT_EQ(config->model_type, "qwen3_5_moe_text");  // where the text part does not name itself
  EXPECT_EQ(config->eos_ids, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(config->tied_embeddings, std::optional(true));
  EXPECT_EQ(config->quantisation.method, Quantisation::Method::kFp8);
}

TEST_F(WrapperConfig, Ties) {
  EXPECT_EQ(parse({})->tied_embeddings, std::nullopt);
  EXPECT_EQ(parse({{"tie_word_embeddings", false}})->tied_embeddings, std::optional(false));
  EXPECT_EQ(parse({{"tie_word_embeddings", true}}, {{"tie_word_embeddings", false}})->tied_embeddings,
            std::optional(true));
  EXPECT_EQ(parse({{"tie_embedding", true}})->tied_embeddings, std::optional(true));
  EXPECT_THAT(parse({{"tie_embedding", 1}}), FailsWith(Code::kInvalidFile, "tie_embedding"));
}

TEST_F(WrapperConfig, AnUnknownTextPartIsNamed) {
  const TempDir dir;
  ModelFiles files = ModelFiles::read(golden_dir("qwen3_moe"));
  files.set("model_type", "somebody_text");
  files.config = Json::object({{"model_type", "somebody"}, {"text_config", files.config}});
  files.write(dir.path());
  EXPECT_THAT(open_golden({.model_dir = dir.path()}), FailsWith(Code::kUnsupported, "'somebody_text'"));
}

TEST_F(WrapperConfig, TwoTensorsOfOneName) {
  const TempDir dir;
  ModelFiles files = ModelFiles::read(golden_dir("qwen3_moe"));
  files.config = Json::object({{"model_type", "somebody"}, {"text_config", files.config}});
  std::map<std::string, HostTensor> tensors;
  for (const auto& [name, tensor] : files.tensors) tensors["language_model." + name] = tensor;
  tensors["lm_head.weight"] = tensors.at("language_model.lm_head.weight");
  files.tensors = std::move(tensors);
  files.write(dir.path());
  EXPECT_THAT(open_golden({.model_dir = dir.path()}),
              FailsWith(Code::kInvalidFile, "'language_model.lm_head.weight' and 'lm_head.weight' are both"));
}

// LFM2's name for it, and files that leave the word out with the head.
TEST(TiedHead, FollowsTheConfigOrTheFile) {
  const TempDir dir;
  ModelFiles files = ModelFiles::read(golden_dir("qwen3_moe"));
  const Ids ids = read_golden(golden_dir("qwen3_moe") / "golden.safetensors")[0].ids;
  const auto logits = [&]() -> std::vector<float> {
    files.write(dir.path());
    auto model = open_golden({.model_dir = dir.path()});
    EXPECT_THAT(model, Succeeds());
    return model.ok() ? model->logits(ids, -1, {256}) : std::vector<float>();
  };
  const std::vector<float> own = logits();
  files.remove("tie_word_embeddings");
  EXPECT_TRUE(logits() == own);  // a stored head counts
  files.tensors["lm_head.weight"] = files.tensors.at("model.embed_tokens.weight");
  const std::vector<float> tied = logits();
  EXPECT_FALSE(tied == own);
  files.tensors.erase("lm_head.weight");
  EXPECT_TRUE(logits() == tied);
  files.set("tie_embedding", true);
  EXPECT_TRUE(logits() == tied);
  files.remove("tie_embedding");
  files.set("tie_word_embeddings", false);
  files.write(dir.path());
  EXPECT_THAT(open_golden({.model_dir = dir.path()}), FailsWith(Code::kInvalidFile, "'lm_head.weight' is missing"));
}

}  // namespace
}  // namespace cadre::test
