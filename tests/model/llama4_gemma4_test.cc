// Llama 4 and Gemma 4 beyond the goldens: configs and layers as they are published
// (tools/goldens/make_llama_gemma_configs.py), both ways to say that layers differ, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "model/golden.h"
#include "model/model_files.h"
#include "model/rope_config.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

Json text(const char* json) { return Json::parse(json, "test").value(); }

fs::path published(const char* name) { return extra_dir() / "models" / name; }

ModelFiles with_config(const char* golden, const char* name) {
  ModelFiles files = ModelFiles::read(golden_dir(golden));
  files.config = Json::parse_file((published(name) / "config.json").string()).value();
  return files;
}

// Layers 0 and 2 dense, with the matrices of the shared expert.
ModelFiles llama4() {
  ModelFiles files = with_config("llama4_text", "llama4_published");
  for (const char* layer : {"0", "2"}) {
    const std::string module = std::string("model.layers.") + layer + ".feed_forward.";
    for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
      auto shared = files.tensors.extract(module + "shared_expert." + part + ".weight");
      shared.key() = module + part + ".weight";
      files.tensors.insert(std::move(shared));
    }
    std::erase_if(files.tensors, [&](const auto& entry) {
      return entry.first.starts_with(module + "experts") || entry.first.starts_with(module + "router");
    });
  }
  return files;
}

// Layer 1 with larger heads, made of the bytes of both layers; values that are keys; a tied head; a layer's factor.
ModelFiles gemma4() {
  ModelFiles files = with_config("gemma4_text", "gemma4_published");
  const std::string first = "model.layers.0.self_attn.", second = "model.layers.1.self_attn.";
  const auto join = [&](const char* name, std::vector<std::int64_t> shape) {
    HostTensor joined = files.tensors.at(first + name);
    const HostTensor& other = files.tensors.at(second + name);
    joined.bytes.insert(joined.bytes.end(), other.bytes.begin(), other.bytes.end());
    joined.shape = std::move(shape);
    files.tensors[second + name] = std::move(joined);
  };
  join("q_proj.weight", {128, 64});
  join("o_proj.weight", {64, 128});
  join("q_norm.weight", {32});
  join("k_norm.weight", {32});
  files.tensors.erase(second + "v_proj.weight");
  files.tensors.erase("lm_head.weight");
  for (const char* layer : {"0", "1"}) {
    HostTensor& factor = files.tensors.at(std::string("model.layers.") + layer + ".layer_scalar");
    factor.bytes = {std::byte{0x40}, std::byte{0x3f}};  // 0.75
  }
  return files;
}

Result<GoldenModel> open_files(const ModelFiles& files) {
  const TempDir dir;  // what is mapped stays after it
  files.write(dir.path());
  return open_golden({.model_dir = dir.path()});
}

void expect_published(const ModelFiles& files, const char* name) {
  auto model = open_files(files);
  ASSERT_THAT(model, Succeeds());
  const auto answers = read_golden(published(name) / "golden.safetensors");
  expect_golden(*model, -1, answers);
  const Ids& ids = answers[2].ids;  // longer than the window and than several chunks
  const std::vector<float> whole = model->logits(ids, -1, {256});
  EXPECT_EQ(whole, model->logits(ids, -1, {1}));
  EXPECT_EQ(whole, model->logits(ids, -1, {5, 1, 17, 2}));
}

// Whether the last prompt's logits are others with one field changed.
void expect_counts(ModelFiles files, const char* name, const char* field, const char* value) {
  SCOPED_TRACE(field);
  files.set(field, text(value));
  auto model = open_files(files);
  ASSERT_THAT(model, Succeeds());
  const auto answers = read_golden(published(name) / "golden.safetensors");
  EXPECT_GT(relative_error(model->logits(answers[2].ids, -1, {256}), answers[2].logits), 1e-3);
}

// ---- Llama 4 ------------------------------------------------------------------------------------------------------

TEST(Llama4, PublishedConfig) { expect_published(llama4(), "llama4_published"); }

// The same model said in other words: the number that the first files have, version 5's lists, and the interval.
TEST(Llama4, OtherSpellings) {
  ModelFiles files = llama4();
  files.set("attn_temperature_tuning", 4);
  files.set("moe_layers", text("[1, 3]"));
  files.set("interleave_moe_layer_step", 1);
  files.set("no_rope_layers", text("[]"));
  files.set("no_rope_layer_interval", 2);
  files.set("layer_types", text(R"(["chunked_attention", "full_attention", "chunked_attention", "full_attention"])"));
  files.set("rope_parameters", files.config.get_object("rope_scaling").value());
  files.remove("rope_scaling");
  expect_published(files, "llama4_published");
}

TEST(Llama4, EveryFieldCounts) {
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"attention_chunk_size", "7"},
           {"attn_scale", "0.1"},
           {"attn_temperature_tuning", "0"},
           {"floor_scale", "5"},
           {"no_rope_layers", "[1, 1, 1, 0]"},
           {"rope_scaling", "null"},
           {"use_qk_norm", "true"},
           {"layer_types", R"(["full_attention", "full_attention", "chunked_attention", "full_attention"])"}}) {
    expect_counts(llama4(), "llama4_published", field, value);
  }
}

TEST(Llama4, Refusals) {
  const auto refused = [](const char* field, const char* value, Code code, const char* message) {
    SCOPED_TRACE(field);
    ModelFiles files = llama4();
    files.set(field, text(value));
    EXPECT_THAT(open_files(files), FailsWith(code, message));
  };
  refused("layer_types", R"(["sliding_attention", "full_attention", "full_attention", "full_attention"])",
          Code::kUnsupported, "'sliding_attention'");
  refused("layer_types", R"(["full_attention"])", Code::kInvalidFile, "layer_types");
  refused("no_rope_layers", "[1, 0]", Code::kInvalidFile, "no_rope_layers");
  refused("no_rope_layer_interval", "0", Code::kInvalidFile, "no_rope_layer_interval");
  refused("interleave_moe_layer_step", "0", Code::kInvalidFile, "interleave_moe_layer_step");
  refused("attention_chunk_size", "null", Code::kInvalidFile, "attention_chunk_size");
  refused("partial_rotary_factor", "0.5", Code::kUnsupported, "partial_rotary_factor");
  refused("floor_scale", "0", Code::kInvalidFile, "floor_scale");
  refused("moe_layers", "[0]", Code::kInvalidFile, "model.layers.0.feed_forward");
  for (const char* field : {"rms_norm_eps", "head_dim", "num_key_value_heads", "rope_theta"}) {
    ModelFiles files = llama4();
    files.remove(field);
    EXPECT_THAT(open_files(files), FailsWith(Code::kInvalidFile, field));
  }
}

// ---- Gemma 4 ------------------------------------------------------------------------------------------------------

TEST(Gemma4, PublishedConfig) { expect_published(gemma4(), "gemma4_published"); }

// As version 5 writes it: what differs is said by layer. And the defaults of the rotation.
TEST(Gemma4, LayersThatDifferByName) {
  ModelFiles files = gemma4();
  files.remove("global_head_dim");
  files.remove("num_global_key_value_heads");
  files.set("per_layer_config", text(R"({"0": {"head_dim": 16, "num_key_value_heads": 2},
                                         "1": {"head_dim": 32, "num_key_value_heads": 1}})"));
  expect_published(files, "gemma4_published");
  files.set("rope_parameters", nullptr);
  expect_published(files, "gemma4_published");
  // The last layer is full, whatever the list says.
  files.set("layer_types", text(R"(["sliding_attention", "sliding_attention"])"));
  expect_published(files, "gemma4_published");
}

TEST(Gemma4, EveryFieldCounts) {
  for (const auto& [field, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"final_logit_softcapping", "2.5"},
           {"final_logit_softcapping", "null"},
           {"sliding_window", "8"},
           {"top_k_experts", "2"},
           {"layer_types", R"(["full_attention", "full_attention"])"},
           {"hidden_activation", R"("silu")"}}) {
    // A full layer 0 would have larger heads than its tensors.
    ModelFiles files = gemma4();
    if (std::string_view(field) == "layer_types") {
      files.set("layer_types", text(value));
      EXPECT_THAT(open_files(files), FailsWith(Code::kInvalidFile, "model.layers.0.self_attn.q_proj"));
    } else {
      expect_counts(files, "gemma4_published", field, value);
    }
  }
}

// Without experts (31B) the layer is its dense part.
TEST(Gemma4, DenseModelRunsAndDiffers) {
  ModelFiles files = gemma4();
  std::erase_if(files.tensors, [](const auto& entry) {
    return entry.first.find(".router.") != std::string::npos || entry.first.find(".experts.") != std::string::npos ||
           entry.first.find("layernorm_1") != std::string::npos || entry.first.find("layernorm_2") != std::string::npos;
  });
  expect_counts(files, "gemma4_published", "enable_moe_block", "false");
}

TEST(Gemma4, Refusals) {
  const auto refused = [](const char* field, const char* value, Code code, const char* message) {
    SCOPED_TRACE(field);
    ModelFiles files = gemma4();
    files.set(field, text(value));
    EXPECT_THAT(open_files(files), FailsWith(code, message));
  };
  refused("hidden_size_per_layer_input", "256", Code::kUnsupported, "hidden_size_per_layer_input");
  refused("hidden_size_per_layer_input", "null", Code::kUnsupported, "hidden_size_per_layer_input");
  refused("num_kv_shared_layers", "1", Code::kUnsupported, "num_kv_shared_layers");
  refused("use_bidirectional_attention", R"("all")", Code::kUnsupported, "use_bidirectional_attention");
  refused("per_layer_config", R"({"1": {"intermediate_size": 8}})", Code::kUnsupported, "'intermediate_size'");
  refused("per_layer_config", R"({"1": 8})", Code::kInvalidFile, "per_layer_config");
  refused("num_global_key_value_heads", "3", Code::kInvalidFile, "full_attention");
  refused("final_logit_softcapping", "0", Code::kInvalidFile, "final_logit_softcapping");
  refused("rope_parameters", R"({"full_attention": {"rope_type": "proportional", "rope_theta": 1e6}})",
          Code::kInvalidFile, "sliding_attention");
  refused("rope_parameters", R"({"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                 "sliding_attention": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}})",
          Code::kUnsupported, "sliding_attention rotates 8 of 16");
  refused("rope_parameters",
          R"({"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_theta": 1e4}})",
          Code::kInvalidFile, "rope_theta");
  ModelFiles files = ModelFiles::read(golden_dir("gemma4_text"));
  files.set("layer_types", text(R"(["full_attention", "full_attention"])"));
  files.set("per_layer_config", text(R"({"1": {"head_dim": 32}})"));
  EXPECT_THAT(open_files(files), FailsWith(Code::kUnsupported, "layer 1 differs"));
}

TEST(Rope, ProportionalStopsTheSlowFrequencies) {
  const Json config = text(R"({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.3,
                                                   "rope_theta": 10000, "factor": 2}})");
  const auto rope = read_rope(config, 16, 256);
  ASSERT_THAT(rope, Succeeds());
  EXPECT_EQ(rope->rope.dim, 16);
  ASSERT_EQ(rope->inv_freq.size(), 8u);
  EXPECT_FLOAT_EQ(rope->inv_freq[0], 0.5f);
  EXPECT_FLOAT_EQ(rope->inv_freq[1], 0.5f / std::pow(10000.0f, 2.0f / 16));
  for (std::size_t i = 2; i < 8; ++i) EXPECT_EQ(rope->inv_freq[i], 0.0f);
}

}  // namespace
}  // namespace cadre::test
