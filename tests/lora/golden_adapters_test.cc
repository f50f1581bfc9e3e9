// Every adapter folder of the goldens that belongs to a family of the first release is read, and bound whole.
#include <filesystem>

#include "io/json.h"
#include "lora/adapter_files.h"
#include "lora/adapter_report.h"
#include "lora/golden_targets.h"

namespace cadre {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModels[] = {"qwen3_moe",
                                   "qwen3_moe_all_modules",
                                   "qwen3_moe_mixed",
                                   "qwen2_moe",
                                   "olmoe",
                                   "mixtral",
                                   "mixtral_rope_dynamic",
                                   "mixtral_rope_linear",
                                   "mixtral_rope_llama3",
                                   "mixtral_rope_longrope",
                                   "mixtral_rope_yarn",
                                   "nemotron_h",
                                   "nemotron_h_all_modules",
                                   "nemotron_h_groups",
                                   "nemotron_h_latent",
                                   "nemotron_h_mlp"};

std::int64_t bound_elements(const Adapter& adapter) {
  std::int64_t n = 0;
  for (const auto& [index, lora] : adapter.dense) {
    n += lora.delta.a.elements() + lora.delta.b.elements() + lora.replacement.elements();
  }
  for (const auto& [index, lora] : adapter.experts) {
    const void* gate_a = nullptr;
    for (std::size_t e = 0; e < std::max({lora.gate.size(), lora.up.size(), lora.down.size()}); ++e) {
      for (const auto* terms : {&lora.gate, &lora.up, &lora.down}) {
        if (terms->empty()) continue;
        const LowRank& term = (*terms)[e];
        if (!term.a.defined()) continue;
        if (terms == &lora.gate) gate_a = term.a.data;
        const bool shared = terms == &lora.up && !lora.gate.empty() && gate_a == term.a.data;
        n += (shared ? 0 : term.a.elements()) + term.b.elements();
      }
    }
  }
  return n;
}

TEST(GoldenAdapters, AllAreReadWhole) {
  int folders = 0;
  for (const char* model : kModels) {
    const AdapterTargets targets = golden_targets(model);
    for (const auto& entry : fs::directory_iterator(fs::path(CADRE_GOLDENS) / "models" / model / "adapters")) {
      SCOPED_TRACE(entry.path().string());
      const auto adapter = read_adapter(entry.path().string(), entry.path().filename().string(), targets);
      ASSERT_THAT(adapter, Succeeds());
      const auto file = SafetensorsFile::open(entry.path() / "adapter_model.safetensors");
      ASSERT_THAT(file, Succeeds());
      std::int64_t elements = 0, bytes = 0;
      for (const TensorInfo& tensor : (*file)->tensors()) {
        elements += tensor.elements();
        bytes += static_cast<std::int64_t>(tensor.nbytes);
      }
      EXPECT_EQ(bound_elements(**adapter), elements);  // nothing left out, nothing twice
      EXPECT_EQ((*adapter)->report.bytes, bytes);
      EXPECT_EQ((*adapter)->digest.size(), 32u);
      EXPECT_FALSE((*adapter)->report.bindings.empty());
      EXPECT_TRUE((*adapter)->report.notes.empty()) << report_text(**adapter);
      ++folders;
    }
  }
  EXPECT_EQ(folders, 46);
}

Result<std::shared_ptr<const Adapter>> read_golden(const std::string& model, const std::string& name) {
  return read_adapter(std::string(CADRE_GOLDENS) + "/models/" + model + "/adapters/" + name, name,
                      golden_targets(model));
}

TEST(GoldenAdapters, FormatsAreNamed) {
  const struct {
    const char *model, *adapter, *format;
  } cases[] = {{"qwen3_moe", "attn", "peft linear"},
               {"qwen3_moe", "experts", "peft stacked (peft orientation)"},
               {"qwen3_moe", "attn_experts", "peft linear + peft stacked (peft orientation)"},
               {"qwen3_moe", "per_expert", "per expert"},
               {"mixtral", "experts", "peft stacked (peft orientation)"},
               {"mixtral", "per_expert", "per expert"},
               {"olmoe", "experts", "peft stacked (peft orientation)"},
               {"nemotron_h", "attn_experts", "peft linear + peft stacked (peft orientation)"},
               {"nemotron_h_all_modules", "every_matrix_f32", "peft linear + per expert"}};
  for (const auto& c : cases) {
    const auto adapter = read_golden(c.model, c.adapter);
    ASSERT_THAT(adapter, Succeeds()) << c.model << " " << c.adapter;
    EXPECT_EQ((*adapter)->report.format, c.format) << c.model << " " << c.adapter;
  }
}

// Doubled rank and alpha for gate and up, in the file's patterns; rsLoRA.
TEST(GoldenAdapters, PatternsDecideRankAndScale) {
  const auto all = read_golden("qwen3_moe_mixed", "all_linear");
  ASSERT_THAT(all, Succeeds());
  for (const auto& [index, lora] : (*all)->experts) {
    ASSERT_EQ(lora.gate.size(), 6u);
    EXPECT_EQ(lora.gate[0].rank(), 6);
    EXPECT_FLOAT_EQ(lora.gate[0].scale, static_cast<float>(12 / std::sqrt(6.0)));
    EXPECT_EQ(lora.gate[5].a.data, lora.up[5].a.data);  // one A for both
    EXPECT_EQ(lora.down[0].rank(), 3);
    EXPECT_FLOAT_EQ(lora.down[0].scale, static_cast<float>(6 / std::sqrt(3.0)));
  }
  const auto partial = read_golden("qwen3_moe", "per_expert_partial");
  ASSERT_THAT(partial, Succeeds());
  ASSERT_EQ((*partial)->experts.size(), 2u);
  for (const auto& [index, lora] : (*partial)->experts) {
    EXPECT_TRUE(lora.gate.empty() && lora.up.empty());
    ASSERT_EQ(lora.down.size(), 8u);
    EXPECT_EQ(lora.down[0].rank(), 2);
    EXPECT_FLOAT_EQ(lora.down[0].scale, static_cast<float>(4 / std::sqrt(2.0)));
    EXPECT_EQ(lora.down[1].rank(), 0);
    EXPECT_EQ(lora.down[2].rank(), 4);
    EXPECT_FLOAT_EQ(lora.down[2].scale, 8.0f);
    EXPECT_FLOAT_EQ(lora.down[4].scale, 2.0f);
  }
  const auto every = read_golden("qwen3_moe_all_modules", "every_matrix_f32");
  ASSERT_THAT(every, Succeeds());
  EXPECT_FLOAT_EQ((*every)->dense.begin()->second.delta.scale, static_cast<float>(5.5 / 3));
}

// ---- adapters of PEFT 0.18 and of rarer settings, kept beside the goldens

Result<std::shared_ptr<const Adapter>> read_extra(const std::string& model, const std::string& name,
                                                  const AdapterOptions& options = {}) {
  return read_adapter(std::string(CADRE_SOURCE) + "/tests/data/extra/" + model + "/" + name, name,
                      golden_targets(model), options);
}

TEST(ExtraAdapters, OldOrientationIsSeenInTheShapes) {
  for (const auto& [model, name] : {std::pair("qwen3_moe", "experts_old"), std::pair("qwen3_moe", "attn_down_old"),
                                    std::pair("olmoe", "experts_old"), std::pair("nemotron_h", "experts_old")}) {
    const auto adapter = read_extra(model, name);
    ASSERT_THAT(adapter, Succeeds()) << model << " " << name;
    EXPECT_THAT((*adapter)->report.format, testing::HasSubstr("peft stacked (swapped orientation)")) << model;
    const auto targets = golden_targets(model);
    for (const auto& [index, lora] : (*adapter)->experts) {
      const ExpertsTarget& target = targets.experts[static_cast<std::size_t>(index)];
      for (const LowRank& term : lora.down) {
        EXPECT_EQ(term.a.dim(1), target.intermediate);
        EXPECT_EQ(term.b.dim(0), target.width);
      }
    }
  }
}

TEST(ExtraAdapters, SquareAloneIsRefused) {
  EXPECT_THAT(read_extra("olmoe", "gate_up_old"),
              FailsWith(Code::kInvalidFile,
                        "is of a square parameter (64 by 64), and no other tensor of the file shows its orientation; "
                        "add orientation=peft if PEFT 0.19 or later wrote the file, orientation=swapped if"));
  for (const Orientation orientation : {Orientation::kSwapped, Orientation::kPeft}) {
    AdapterOptions options;
    options.orientation = orientation;
    const auto adapter = read_extra("olmoe", "gate_up_old", options);
    ASSERT_THAT(adapter, Succeeds());
    EXPECT_FALSE((*adapter)->experts.begin()->second.gate.empty());
    EXPECT_TRUE((*adapter)->experts.begin()->second.down.empty());
  }
}

TEST(ExtraAdapters, DoraIsRefused) {
  EXPECT_THAT(read_extra("qwen3_moe", "dora"), FailsWith(Code::kUnsupported, "field 'use_dora' is set: DoRA is not"));
}

const LowRank& dense_term(const Adapter& adapter, const AdapterTargets& targets, const std::string& module) {
  for (std::size_t i = 0; i < targets.dense.size(); ++i) {
    const auto at = adapter.dense.find(static_cast<int>(i));
    if (targets.dense[i].module == module && at != adapter.dense.end()) return at->second.delta;
  }
  static const LowRank kNone;
  ADD_FAILURE() << module << " is not bound";
  return kNone;
}

TEST(ExtraAdapters, PatternsMatchAsPeftMatchesThem) {
  const AdapterTargets targets = golden_targets("qwen3_moe");
  const auto patterns = read_extra("qwen3_moe", "patterns");
  ASSERT_THAT(patterns, Succeeds());
  const auto scale = [&](const auto& adapter, const char* module) {
    return dense_term(**adapter, targets, "model.layers." + std::string(module)).scale;
  };
  EXPECT_FLOAT_EQ(scale(patterns, "0.self_attn.q_proj"), 5.0f / 2);
  EXPECT_FLOAT_EQ(scale(patterns, "1.self_attn.q_proj"), 8.0f / 4);
  EXPECT_FLOAT_EQ(scale(patterns, "0.self_attn.o_proj"), 16.0f / 4);
  EXPECT_FLOAT_EQ(scale(patterns, "1.self_attn.k_proj"), 1.5f / 3);
  EXPECT_FLOAT_EQ(scale(patterns, "1.self_attn.v_proj"), 1.5f / 6);
  const auto order = read_extra("qwen3_moe", "patterns_order");
  ASSERT_THAT(order, Succeeds());
  EXPECT_FLOAT_EQ(scale(order, "0.self_attn.q_proj"), 2.0f / 4);  // the first key in the file, not the longest
  EXPECT_FLOAT_EQ(scale(order, "1.self_attn.o_proj"), 3.0f / 4);
  EXPECT_FLOAT_EQ(scale(order, "0.self_attn.v_proj"), 4.0f / 4);
  EXPECT_FLOAT_EQ(scale(order, "1.self_attn.v_proj"), 24.0f / 4);
  const auto rslora = read_extra("qwen3_moe", "rslora_patterns");
  ASSERT_THAT(rslora, Succeeds());
  EXPECT_FLOAT_EQ(scale(rslora, "1.self_attn.q_proj"), 3.0f / 3);
  EXPECT_FLOAT_EQ(scale(rslora, "0.self_attn.k_proj"), 7.5f / 2);
  const auto experts = read_extra("qwen3_moe", "experts_patterns");
  ASSERT_THAT(experts, Succeeds());
  const LayerLora &first = (*experts)->experts.at(0), &second = (*experts)->experts.at(1);
  EXPECT_EQ(first.gate[7].rank(), 2);
  EXPECT_FLOAT_EQ(first.gate[7].scale, 5.0f / 2);
  EXPECT_EQ(first.down[7].rank(), 3);
  EXPECT_FLOAT_EQ(first.down[7].scale, 4.0f / 3);
  EXPECT_FLOAT_EQ(second.down[7].scale, 9.0f / 3);
}

TEST(ExtraAdapters, EmbeddingsAndWholeWeights) {
  const AdapterTargets targets = golden_targets("qwen3_moe");
  const auto embedding = read_extra("qwen3_moe", "embedding");
  ASSERT_THAT(embedding, Succeeds());
  EXPECT_EQ((*embedding)->report.format, "peft linear + peft embedding + whole weights");
  const LowRank& term = dense_term(**embedding, targets, "model.embed_tokens");
  EXPECT_EQ(term.a.dim(1), 320);
  EXPECT_EQ(term.b.dim(0), 64);
  const auto only = read_extra("qwen3_moe", "embedding_lora_only");
  ASSERT_THAT(only, Succeeds());
  EXPECT_EQ((*only)->report.format, "peft linear + peft embedding");
  const auto saved = read_extra("qwen3_moe", "save_lm_head");
  ASSERT_THAT(saved, Succeeds());
  int replaced = 0;
  for (const auto& [index, lora] : (*saved)->dense) {
    if (!lora.replacement.defined()) continue;
    ++replaced;
    EXPECT_EQ(targets.dense[static_cast<std::size_t>(index)].module, "lm_head");
    EXPECT_EQ(lora.replacement.describe(), "float32 [320, 64]");
  }
  EXPECT_EQ(replaced, 1);
  EXPECT_TRUE((*saved)->report.notes.empty());
  EXPECT_THAT(read_extra("qwen3_moe_mixed", "lm_head"), Succeeds());
  EXPECT_THAT(read_extra("qwen3_moe", "layers"), Succeeds());
  EXPECT_THAT(read_extra("qwen3_moe", "target_regex"), Succeeds());
}

}  // namespace
}  // namespace cadre
