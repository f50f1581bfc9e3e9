// What cannot be honoured is refused by name, with what to do; and what is merely odd is noted.
#include <limits>

#include "lora/adapter_files.h"
#include "lora/golden_targets.h"

namespace cadre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj.";
const std::string kExperts = "base_model.model.model.layers.0.mlp.experts.";

Tensors q_proj() { return {{kQ + "lora_A.weight", numbered(2, 8, 1)}, {kQ + "lora_B.weight", numbered(8, 2, 2)}}; }

// q_proj and one more tensor.
Tensors with(const std::string& name, Matrix matrix) {
  Tensors tensors = q_proj();
  tensors[name] = std::move(matrix);
  return tensors;
}

TEST(Refusals, ConfigFields) {
  const struct {
    const char *more, *message;
  } cases[] = {
      {R"("use_dora": true)", "field 'use_dora' is set: DoRA is not supported; merge the adapter"},
      {R"("bias": "all")", "field 'bias' is 'all', want 'none'"},
      {R"("bias": "lora_only")", "field 'bias' is 'lora_only', want 'none'"},
      {R"("lora_bias": true)", "field 'lora_bias' is set: a bias in lora_B"},
      {R"("fan_in_fan_out": true)", "field 'fan_in_fan_out' is set"},
      {R"("trainable_token_indices": [1, 2])", "field 'trainable_token_indices' is set"},
      {R"("layer_replication": [[0, 1]])", "field 'layer_replication' is set"},
      {R"("alora_invocation_tokens": [7])", "field 'alora_invocation_tokens' is set"},
      {R"("use_qalora": true)", "field 'use_qalora' is set"},
      {R"("use_bdlora": {"nblocks": 2})", "field 'use_bdlora' is set"},
      {R"("arrow_config": {"top_k": 3})", "field 'arrow_config' is set"},
      {R"("kasa_config": {"beta": 1})", "field 'kasa_config' is set"},
      {R"("monteclora_config": {"n": 1})", "field 'monteclora_config' is set"},
      {R"("megatron_config": {"x": 1})", "field 'megatron_config' is set"},
      {R"("init_lora_weights": "pissa_niter_16")",
       "changes the base weights; convert the adapter with save_pretrained("},
      {R"("init_lora_weights": "OLoRA")", "field 'init_lora_weights' is 'olora'"},
      {R"("modules_to_save": ["lm_head", "score"])", "modules_to_save lists 'score'; only lm_head and the embedding"},
      {R"("modules_to_save": ["mlp.gate"])", "modules_to_save lists 'mlp.gate'"},
      {R"("rank_pattern": {"q_proj": 0})", "field 'rank_pattern' entry 'q_proj' is 0, want a rank from 1"},
  };
  for (const auto& c : cases) {
    const auto adapter = read_tensors(small_targets(), config_text(c.more), q_proj());
    EXPECT_THAT(adapter, testing::Not(Succeeds())) << c.more;
    EXPECT_THAT(adapter.status().message(), HasSubstr(c.message)) << c.more;
    EXPECT_THAT(adapter.status().message(), HasSubstr("adapter_config.json"));
    EXPECT_THAT(adapter.status().message(), testing::StartsWith("adapter 'test': "));
  }
}

TEST(Refusals, RankAlphaAndType) {
  const struct {
    const char *config, *message;
  } cases[] = {
      {R"({"peft_type": "IA3"})", "field 'peft_type' is 'IA3', want 'LORA'"},
      {R"({"peft_type": "LOHA", "r": 2, "lora_alpha": 4})", "field 'peft_type' is 'LOHA', want 'LORA'"},
      {R"({"r": 2, "lora_alpha": 4})", "field 'peft_type' is missing"},
      {R"({"peft_type": "LORA", "lora_alpha": 4})", "field 'r' is missing"},
      {R"({"peft_type": "LORA", "r": 2})", "field 'lora_alpha' is missing"},
      {R"({"peft_type": "LORA", "r": 0, "lora_alpha": 4})", "field 'r' is 0, want a rank from 1 to 65536"},
      {R"({"peft_type": "LORA", "r": -4, "lora_alpha": 4})", "field 'r' is -4, want a rank from 1 to 65536"},
      {R"({"peft_type": "LORA", "r": 99999999, "lora_alpha": 4})", "field 'r' is 99999999, want a rank"},
      {R"({"peft_type": "LORA", "r": "two", "lora_alpha": 4})", "want an integer"},
      {R"({"peft_type": "LORA", "r": 2, "lora_alpha": NaN})", "field 'lora_alpha' is "},
      {R"([1])", "holds an array, want an object"},
      {R"({"peft_type": )", "adapter_config.json"},
  };
  for (const auto& c : cases) {
    const auto adapter = read_tensors(small_targets(), c.config, q_proj());
    ASSERT_FALSE(adapter.ok()) << c.config;
    EXPECT_THAT(adapter.status().message(), HasSubstr(c.message)) << c.config;
  }
}

TEST(Refusals, RankOfTheTensorsMustBeTheConfigs) {
  EXPECT_THAT(read_tensors(small_targets(), config_text("", 4), q_proj()),
              FailsWith(Code::kInvalidFile, "is F32 [2, 8], which is rank 2, but "));
  EXPECT_THAT(read_tensors(small_targets(), config_text("", 4), q_proj()),
              FailsWith(Code::kInvalidFile, "adapter_config.json gives it rank 4; correct r or rank_pattern there"));
  Tensors uneven = q_proj();
  uneven[kQ + "lora_B.weight"] = numbered(8, 3, 1);
  EXPECT_THAT(read_tensors(small_targets(), config_text(), uneven),
              FailsWith(Code::kInvalidFile, "is F32 [8, 3], which is rank 3"));
}

TEST(Refusals, Shapes) {
  Tensors tensors = q_proj();
  tensors[kQ + "lora_A.weight"] = numbered(2, 9, 1);
  EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
              FailsWith(Code::kInvalidFile, "q_proj.lora_A.weight' of "));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
              FailsWith(Code::kInvalidFile, "is F32 [2, 9], want [2, 8]: adapter of another model?"));
  tensors = q_proj();
  tensors[kQ + "lora_B.weight"] = numbered(7, 2, 1);
  EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
              FailsWith(Code::kInvalidFile, "is F32 [7, 2], want [8, 2]"));
  tensors = q_proj();
  tensors[kQ + "lora_A.weight"].shape = {2, 8, 1};
  EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
              FailsWith(Code::kInvalidFile, "is F32 [2, 8, 1], want [2, 8]"));
  tensors = q_proj();
  tensors[kQ + "lora_A.weight"] = Matrix{{0, 8}, {}};
  EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
              FailsWith(Code::kInvalidFile, "is F32 [0, 8], want a matrix"));
}

TEST(Refusals, IncompletePairs) {
  for (const char* cut : {"lora_A", "lora_B"}) {
    Tensors tensors = q_proj();
    tensors.erase(kQ + cut + ".weight");
    EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
                FailsWith(Code::kInvalidFile, "has no " + std::string(cut) + " beside it: the file is not complete"));
  }
}

TEST(Refusals, TensorsOfUnsupportedKinds) {
  EXPECT_THAT(read_tensors(small_targets(), config_text(), with(kQ + "lora_magnitude_vector", numbered(8, 1, 3))),
              FailsWith(Code::kUnsupported, "lora_magnitude_vector' is of DoRA, which is not supported"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(),
                           with(kQ + "lora_magnitude_vector.default.weight", numbered(8, 1, 3))),
              FailsWith(Code::kUnsupported, "is of DoRA"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), with(kQ + "bias", numbered(8, 1, 3))),
              FailsWith(Code::kUnsupported, "q_proj.bias' is a trained bias, which is not supported"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), with(kQ + "lora_B.bias", numbered(8, 1, 3))),
              FailsWith(Code::kUnsupported, "is a trained bias"));
  EXPECT_THAT(
      read_tensors(small_targets(), config_text(), with(kQ + "weight", numbered(8, 8, 3))),
      FailsWith(Code::kInvalidFile, "1 of 3 tensors bind to nothing: '" + kQ +
                                        "weight'; the module is in the model, but a tensor of this name is not"));
}

TEST(Refusals, LeftOverTensors) {
  const std::string other = "base_model.model.model.layers.0.self_attn.";
  Tensors tensors = with(other + "k_proj.lora_A.weight", numbered(2, 8, 3));
  tensors[other + "k_proj.lora_B.weight"] = numbered(8, 2, 3);
  EXPECT_THAT(
      read_tensors(small_targets(), config_text(), tensors),
      FailsWith(Code::kInvalidFile, "2 of 4 tensors bind to nothing: '" + other + "k_proj.lora_A.weight', '" + other +
                                        "k_proj.lora_B.weight'; the model has no such module: adapter"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(),
                           with("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", numbered(2, 8, 3))),
              FailsWith(Code::kInvalidFile, "; the model has 1 layers: adapter of another model?"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(),
                           with("base_model.model.model.layers.0.attention.q_proj.lora_A.weight", numbered(2, 8, 3))),
              FailsWith(Code::kInvalidFile, "; the nearest module of the model is 'model.layers.0.self_attn.q_proj'"));
  Tensors many;
  for (int i = 0; i < 30; ++i) many["x" + std::to_string(i) + ".lora_A.weight"] = numbered(2, 8, i);
  const auto adapter = read_tensors(small_targets(), config_text(), many);
  EXPECT_THAT(adapter, FailsWith(Code::kInvalidFile, "30 of 30 tensors bind to nothing: 'x0.lora_A.weight', "));
  EXPECT_LT(adapter.status().message().size(), 600u);
  EXPECT_THAT(read_tensors(small_targets(), config_text(), {}), FailsWith(Code::kInvalidFile, "holds no tensors"));
}

TEST(Refusals, Experts) {
  const auto one = [](const std::string& name) {
    return Tensors{{kExperts + name + ".lora_A.weight", numbered(2, 8, 3)},
                   {kExperts + name + ".lora_B.weight", numbered(6, 2, 4)}};
  };
  EXPECT_THAT(read_tensors(small_targets(), config_text(), one("2.up_proj")), Succeeds());
  EXPECT_THAT(read_tensors(small_targets(), config_text(), one("3.up_proj")),
              FailsWith(Code::kInvalidFile, "is of expert 3, and 'model.layers.0.mlp.experts' has experts 0 to 2"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), one("0.w1")),
              FailsWith(Code::kInvalidFile, "no projection 'w1', want one of gate_proj, up_proj, down_proj"));
  EXPECT_THAT(read_tensors(small_targets(3, 8, 6, false), config_text(), one("0.gate_proj")),
              FailsWith(Code::kInvalidFile, "no projection 'gate_proj', want one of up_proj, down_proj"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), one("99999999999.up_proj")),
              FailsWith(Code::kInvalidFile, "bind to nothing"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), one("base_layer.base_layer")),
              FailsWith(Code::kInvalidFile, "bind to nothing"));
}

TEST(Refusals, TwoAdaptersInOneFile) {
  Tensors tensors = q_proj();
  tensors[kQ + "lora_A.default.weight"] = numbered(2, 8, 1);
  tensors[kQ + "lora_B.default.weight"] = numbered(8, 2, 1);
  EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
              FailsWith(Code::kInvalidFile, "bind to the same place; keep one adapter in a file"));
}

TEST(Refusals, NanAndInfinity) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Tensors tensors = q_proj();
    tensors[kQ + "lora_B.weight"](7, 1) = bad;
    EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors),
                FailsWith(Code::kInvalidFile, "q_proj.lora_B.weight' holds NaN or infinite values"));
    AdapterOptions unchecked;
    unchecked.check_weights = false;
    EXPECT_THAT(read_tensors(small_targets(), config_text(), tensors, unchecked), Succeeds());
  }
}

Result<std::shared_ptr<const Adapter>> read_typed(DType dtype, std::uint16_t last) {
  const TempDir folder;
  folder.write("adapter_config.json", config_text());
  std::vector<std::uint16_t> a(16, 0x3f80), b(16, 0x3f80);
  b.back() = last;
  const NamedTensor tensors[] = {{kQ + "lora_A.weight", dtype, {2, 8}, std::as_bytes(std::span(a))},
                                 {kQ + "lora_B.weight", dtype, {8, 2}, std::as_bytes(std::span(b))}};
  EXPECT_THAT(write_safetensors(folder / "adapter_model.safetensors", tensors), Succeeds());
  return read_adapter(folder.path().string(), "typed", small_targets());
}

TEST(Refusals, ElementTypes) {
  EXPECT_THAT(read_typed(DType::kBF16, 0x7f7f), Succeeds());
  EXPECT_THAT(read_typed(DType::kBF16, 0x7f80), FailsWith(Code::kInvalidFile, "holds NaN or infinite"));
  EXPECT_THAT(read_typed(DType::kBF16, 0xffc0), FailsWith(Code::kInvalidFile, "holds NaN or infinite"));
  EXPECT_THAT(read_typed(DType::kF16, 0x7bff), Succeeds());
  EXPECT_THAT(read_typed(DType::kF16, 0xfc00), FailsWith(Code::kInvalidFile, "holds NaN or infinite"));
  EXPECT_THAT(read_typed(DType::kI16, 1), FailsWith(Code::kUnsupported, "is I16, want BF16, F16 or F32"));
}

TEST(Refusals, Files) {
  const AdapterTargets targets = small_targets();
  const TempDir folder;
  const auto read = [&](const std::string& at) { return read_adapter(at, "test", targets); };
  EXPECT_THAT(read((folder / "none").string()), FailsWith(Code::kNotFound, "none is not there; want a folder with"));
  folder.write("file", "x");
  EXPECT_THAT(read((folder / "file").string()), FailsWith(Code::kInvalidArgument, "file is a file, want a folder"));
  EXPECT_THAT(read(folder.path().string()), FailsWith(Code::kNotFound, "adapter_config.json is not there"));
  folder.write("adapter_config.json", config_text());
  EXPECT_THAT(read(folder.path().string()), FailsWith(Code::kNotFound, "adapter_model.safetensors is not there"));
  folder.write("adapter_model.bin", "pickle");
  EXPECT_THAT(read(folder.path().string()),
              FailsWith(Code::kUnsupported, "is a pickle, which can run code when it is"));
  EXPECT_THAT(read(folder.path().string()), FailsWith(Code::kUnsupported, "convert it to safetensors"));
  folder.write("adapter_model.safetensors", "short");
  EXPECT_THAT(read(folder.path().string()), FailsWith(Code::kInvalidFile, "adapter_model.safetensors"));
}

TEST(Refusals, SavedModulesThatAreNotInTheFile) {
  for (const char* name : {"lm_head", "embed_tokens", "model.embed_tokens"}) {
    const auto adapter =
        read_tensors(small_targets(), config_text(R"("modules_to_save": [")" + std::string(name) + "\"]"), q_proj());
    EXPECT_THAT(adapter, FailsWith(Code::kInvalidFile, "modules_to_save lists '" + std::string(name) + "', and "));
    EXPECT_THAT(adapter, FailsWith(Code::kInvalidFile, "holds no tensor of it"));
  }
  // One of the two is there.
  EXPECT_THAT(read_tensors(small_targets(), config_text(R"("modules_to_save": ["lm_head", "embed_tokens"])"),
                           with("base_model.model.lm_head.weight", numbered(16, 8, 3))),
              FailsWith(Code::kInvalidFile, "modules_to_save lists 'embed_tokens'"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(R"("modules_to_save": ["model.embed_tokens"])"),
                           with("base_model.model.model.embed_tokens.weight", numbered(16, 8, 3))),
              Succeeds());
}

TEST(Refusals, VocabularyOfAnotherSize) {
  EXPECT_THAT(
      read_tensors(small_targets(), config_text(R"("modules_to_save": ["lm_head"])"),
                   with("base_model.model.lm_head.weight", numbered(18, 8, 3))),
      FailsWith(Code::kUnsupported, "is F32 [18, 8], and the model has 16 tokens: an adapter that changes the"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(),
                           with("base_model.model.model.embed_tokens.base_layer.weight", numbered(18, 8, 3))),
              FailsWith(Code::kUnsupported, "and the model has 16 tokens"));
  EXPECT_THAT(read_tensors(small_targets(), config_text(), with("base_model.model.lm_head.weight", numbered(16, 4, 3))),
              FailsWith(Code::kInvalidFile, "is F32 [16, 4], want [16, 8]"));
}

// ---- what is accepted

TEST(Replacements, EveryName) {
  for (const char* name : {"base_model.model.lm_head.weight", "base_model.model.lm_head.modules_to_save.default.weight",
                           "base_model.model.lm_head.modules_to_save.weight", "lm_head.weight",
                           "base_model.model.lm_head.base_layer.weight"}) {
    const Matrix weight = numbered(16, 8, 3);
    const auto adapter =
        read_tensors(small_targets(), config_text(R"("modules_to_save": ["lm_head"])"), with(name, weight));
    ASSERT_THAT(adapter, Succeeds()) << name;
    EXPECT_EQ(values_of((*adapter)->dense.at(3).replacement), weight) << name;
    EXPECT_EQ((*adapter)->report.format, "peft linear + whole weights");
    EXPECT_TRUE((*adapter)->report.notes.empty()) << name;
  }
}

// PEFT puts a weight that modules_to_save does not list into the base weight, which a tied lm_head shares.
TEST(Replacements, TiedWeights) {
  AdapterTargets targets = small_targets();
  targets.dense[3].tied = true;
  const Matrix weight = numbered(16, 8, 3);
  const Tensors tensors = with("base_model.model.model.embed_tokens.weight", weight);
  const auto shared = read_tensors(targets, config_text(), tensors);
  ASSERT_THAT(shared, Succeeds());
  EXPECT_EQ(values_of((*shared)->dense.at(2).replacement), weight);
  EXPECT_EQ(values_of((*shared)->dense.at(3).replacement), weight);
  EXPECT_THAT((*shared)->report.notes, ElementsAre(HasSubstr("is a whole weight that modules_to_save does not list")));
  const auto own = read_tensors(targets, config_text(R"("modules_to_save": ["embed_tokens"])"), tensors);
  ASSERT_THAT(own, Succeeds());
  EXPECT_TRUE((*own)->dense.at(2).replacement.defined());
  EXPECT_FALSE((*own)->dense.contains(3));
  EXPECT_THAT(read_tensors(targets, config_text(R"("modules_to_save": ["embed_tokens"], "ensure_weight_tying": true)"),
                           tensors),
              FailsWith(Code::kUnsupported, "ensure_weight_tying is set and 'model.embed_tokens' is adapted"));
  EXPECT_THAT(read_tensors(targets, config_text(R"("ensure_weight_tying": true)"), q_proj()), Succeeds());
}

TEST(Names, PrefixesAndAdapterNames) {
  AdapterTargets targets = small_targets();
  targets.prefix_aliases = {{"backbone.", "model."}};
  for (const char* prefix : {"base_model.model.model.", "model.", "base_model.model.backbone.", "backbone."}) {
    const std::string q = prefix + std::string("layers.0.self_attn.q_proj.");
    EXPECT_THAT(
        read_tensors(targets, config_text(),
                     {{q + "lora_A.default.weight", numbered(2, 8, 1)}, {q + "lora_B.weight", numbered(8, 2, 1)}}),
        Succeeds())
        << prefix;
  }
  const std::string embedding = "base_model.model.model.embed_tokens.lora_embedding_";
  const auto adapter = read_tensors(
      targets, config_text(), {{embedding + "A.default", numbered(2, 16, 1)}, {embedding + "B", numbered(8, 2, 1)}});
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_EQ((*adapter)->report.bindings.at(0).kind, "embedding");
}

// Patterns are tried on the file's name of a module, then on the model's.
TEST(Names, PatternsUnderBothNames) {
  AdapterTargets targets = small_targets();
  targets.prefix_aliases = {{"backbone.", "model."}};
  const std::string q = "base_model.model.backbone.layers.0.self_attn.q_proj.";
  const Tensors tensors = {{q + "lora_A.weight", numbered(2, 8, 1)}, {q + "lora_B.weight", numbered(8, 2, 1)}};
  for (const char* key : {"^backbone.layers.0.self_attn.q_proj", "^model.layers.0.self_attn.q_proj"}) {
    const auto adapter =
        read_tensors(targets, config_text("\"alpha_pattern\": {\"" + std::string(key) + "\": 7}"), tensors);
    ASSERT_THAT(adapter, Succeeds());
    EXPECT_EQ((*adapter)->dense.at(0).delta.scale, 3.5f) << key;
  }
}

// A 2-D parameter targeted as a parameter is matched as "<module>.weight".
TEST(Names, RouterAsParameter) {
  const std::string gate = "base_model.model.model.layers.0.mlp.gate.";
  const Tensors tensors = {{gate + "lora_A.weight", numbered(2, 8, 1)}, {gate + "lora_B.weight", numbered(3, 2, 1)}};
  const auto adapter = read_tensors(
      small_targets(),
      config_text(R"("target_parameters": ["mlp.gate.weight"], "alpha_pattern": {"gate": 9, "gate.weight": 5})"),
      tensors);
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_EQ((*adapter)->dense.at(1).delta.scale, 2.5f);
  EXPECT_TRUE((*adapter)->report.notes.empty());
}

TEST(Notes, WhatIsOdd) {
  Tensors tensors = q_proj();
  std::fill(tensors[kQ + "lora_B.weight"].values.begin(), tensors[kQ + "lora_B.weight"].values.end(), -0.0f);
  AdapterOptions options;
  options.orientation = Orientation::kSwapped;
  options.b_order = BOrder::kExpertMajor;
  const auto adapter = read_tensors(
      small_targets(),
      config_text(
          R"("target_modules": ["q_proj", "gate_proj"], "target_parameters": ["experts.down_proj"], "new_thing": 3)"),
      tensors, options);
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_THAT((*adapter)->report.notes,
              ElementsAre("target_modules lists 'gate_proj', and the file holds no tensor for it",
                          "target_parameters lists 'experts.down_proj', and the file holds no tensor for it",
                          "lora_B is all zero in 1 of 1 pairs, e.g. '" + kQ +
                              "lora_B.weight': the adapter changes nothing there",
                          "option orientation changes nothing: the file holds no stacked experts",
                          "option b_order changes nothing: the file holds no stacked experts",
                          "field 'new_thing' of the config is set, not known here, and ignored"));
}

TEST(Notes, ScaleZero) {
  Tensors tensors = with("base_model.model.lm_head.lora_A.weight", numbered(2, 8, 1));
  tensors["base_model.model.lm_head.lora_B.weight"] = numbered(16, 2, 1);
  tensors[kExperts + "1.up_proj.lora_A.weight"] = numbered(2, 8, 1);
  tensors[kExperts + "1.up_proj.lora_B.weight"] = numbered(6, 2, 1);
  const auto notes = [&](const std::string& config) {
    const auto adapter = read_tensors(small_targets(), config, tensors);
    EXPECT_THAT(adapter, Succeeds());
    return adapter.ok() ? (*adapter)->report.notes : std::vector<std::string>();
  };
  EXPECT_THAT(notes(config_text()), ElementsAre());
  EXPECT_THAT(
      notes(config_text("", 2, 0)),
      ElementsAre("the scale is 0 in 3 of 3 terms, e.g. of 'model.layers.0.self_attn.q_proj' (lora_alpha is 0): "
                  "the adapter changes nothing there"));
  EXPECT_THAT(notes(config_text(R"("alpha_pattern": {"up_proj": 0})")),
              ElementsAre("the scale is 0 in 1 of 3 terms, e.g. of 'model.layers.0.mlp.experts' (alpha_pattern is 0): "
                          "the adapter changes nothing there"));
}

// A header without padding puts the elements at odd addresses; those are copied.
TEST(Names, OddAddresses) {
  std::string header = "{\"" + kQ + "lora_A.weight\": {\"dtype\": \"F32\", \"shape\": [2, 8], " +
                       "\"data_offsets\": [0, 64]}, \"" + kQ + "lora_B.weight\": {\"dtype\": \"F32\", " +
                       "\"shape\": [8, 2], \"data_offsets\": [64, 128]}}";
  while (header.size() % 4 != 1) header += ' ';
  const Tensors tensors = q_proj();
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  file += header;
  for (const char* part : {"lora_A.weight", "lora_B.weight"}) {
    const std::vector<float>& values = tensors.at(kQ + part).values;
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  const TempDir folder;
  folder.write("adapter_config.json", config_text());
  folder.write("adapter_model.safetensors", file);
  const auto adapter = read_adapter(folder.path().string(), "odd", small_targets());
  ASSERT_THAT(adapter, Succeeds());
  const LowRank& term = (*adapter)->dense.at(0).delta;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(term.a.data) % 4, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(term.b.data) % 4, 0u);
  EXPECT_EQ(values_of(term.a), tensors.at(kQ + "lora_A.weight"));
  EXPECT_EQ(values_of(term.b), tensors.at(kQ + "lora_B.weight"));
}

// The digest is of both files' content, and of nothing else.
TEST(Digest, FollowsTheContent) {
  const auto digest = [](const std::string& config, const Tensors& tensors) {
    return read_tensors(small_targets(), config, tensors).value()->digest;
  };
  const std::string first = digest(config_text(), q_proj());
  EXPECT_EQ(first, digest(config_text(), q_proj()));
  EXPECT_NE(first, digest(config_text("", 2, 5), q_proj()));
  Tensors changed = q_proj();
  changed[kQ + "lora_B.weight"](7, 1) += 1;
  EXPECT_NE(first, digest(config_text(), changed));
}

TEST(Options, AreParsed) {
  ASSERT_THAT(parse_adapter_options(""), Succeeds());
  EXPECT_EQ(parse_adapter_options("")->orientation, Orientation::kAuto);
  const auto options = parse_adapter_options("orientation=swapped,b_order=expert_major,check_weights=false");
  ASSERT_THAT(options, Succeeds());
  EXPECT_EQ(options->orientation, Orientation::kSwapped);
  EXPECT_EQ(options->b_order, BOrder::kExpertMajor);
  EXPECT_FALSE(options->check_weights);
  EXPECT_EQ(parse_adapter_options("orientation=peft")->orientation, Orientation::kPeft);
  for (const char* bad :
       {"orientation", "orientation=", "orientation=sideways", "b_order", "rank=4", "=peft", ",", " "}) {
    EXPECT_THAT(
        parse_adapter_options(bad),
        FailsWith(Code::kInvalidArgument, "want one of orientation=auto|peft|swapped, b_order=peft|expert_major"))
        << bad;
  }
}

}  // namespace
}  // namespace cadre
