// Configs that cannot be run: unknown names, contradictions, and numbers that no model has. All end in an error at
// once; none may reserve memory for what it promises.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

// Sanitizers keep freed memory and shadows of it: what the process holds then says little.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CADRE_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CADRE_TEST_SANITIZED
#endif
#endif

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

// A golden's config with one change, on the golden's weights.
class Changed {
 public:
  explicit Changed(const std::string& model) {
    files_.config = Json::parse_file((golden_dir(model) / "config.json").string()).value();
    fs::create_symlink(golden_dir(model) / "model.safetensors", dir_ / "model.safetensors");
  }
  Changed& set(const std::string& key, Json value) {
    files_.set(key, std::move(value));
    return *this;
  }
  Changed& remove(const std::string& key) {
    files_.remove(key);
    return *this;
  }
  Result<std::unique_ptr<Model>> load() const {
    files_.write_config(dir_.path());
    ModelOptions options;
    options.dir = dir_.path();
    options.device = make_cpu_device();
    return Model::load(options);
  }

 private:
  ModelFiles files_;
  TempDir dir_;
};

Json text(const char* json) { return Json::parse(json, "test").value(); }

// ---- unknown names ----------------------------------------------------------------------------------------------

TEST(Config, UnknownFamilyListsTheKnown) {
  const auto refused = Changed("qwen3_moe").set("model_type", "llama").load();
  EXPECT_THAT(refused, FailsWith(Code::kUnsupported, "model_type 'llama'"));
  for (const char* known : {"mixtral", "nemotron_h", "olmoe", "qwen2_moe", "qwen3_moe", "config.json"}) {
    EXPECT_THAT(refused, FailsWith(Code::kUnsupported, known));
  }
  EXPECT_THAT(Changed("qwen3_moe").remove("model_type").load(), FailsWith(Code::kInvalidFile, "'model_type'"));
  EXPECT_THAT(Changed("qwen3_moe").set("model_type", 3).load(), FailsWith(Code::kInvalidFile, "'model_type'"));
}

TEST(Config, UnknownRopeTypeListsTheKnown) {
  const auto refused =
      Changed("qwen3_moe").set("rope_parameters", text(R"({"rope_type": "spiral", "rope_theta": 1e4})")).load();
  EXPECT_THAT(refused, FailsWith(Code::kUnsupported, "'spiral'"));
  for (const char* known : {"default", "linear", "dynamic", "yarn", "llama3", "longrope"}) {
    EXPECT_THAT(refused, FailsWith(Code::kUnsupported, known));
  }
  EXPECT_THAT(Changed("qwen3_moe").set("rope_parameters", nullptr).set("rope_scaling", text(R"({"type": "x"})")).load(),
              FailsWith(Code::kUnsupported, "'x'"));
}

TEST(Config, UnknownActivationListsTheKnown) {
  EXPECT_THAT(Changed("qwen3_moe").set("hidden_act", "mish").load(),
              FailsWith(Code::kUnsupported, "'mish', want one of: silu"));
  EXPECT_THAT(Changed("nemotron_h").set("mlp_hidden_act", "mish").load(), FailsWith(Code::kUnsupported, "relu2"));
  EXPECT_THAT(Changed("nemotron_h").set("mamba_hidden_act", "gelu").load(), FailsWith(Code::kUnsupported, "silu only"));
}

// ---- fields -----------------------------------------------------------------------------------------------------

TEST(Config, MissingFieldIsNamed) {
  for (const auto& [model, field] : {std::pair{"qwen3_moe", "hidden_size"},
                                     {"qwen3_moe", "vocab_size"},
                                     {"qwen3_moe", "num_hidden_layers"},
                                     {"qwen3_moe", "num_attention_heads"},
                                     {"qwen3_moe", "num_experts_per_tok"},
                                     {"qwen3_moe", "moe_intermediate_size"},
                                     {"mixtral", "num_local_experts"},
                                     {"mixtral", "intermediate_size"},
                                     {"olmoe", "num_experts"},
                                     {"qwen2_moe", "shared_expert_intermediate_size"},
                                     {"nemotron_h", "n_routed_experts"},
                                     {"nemotron_h", "mamba_num_heads"},
                                     {"nemotron_h", "ssm_state_size"},
                                     {"nemotron_h", "conv_kernel"}}) {
    EXPECT_THAT(Changed(model).remove(field).load(), FailsWith(Code::kInvalidFile, "'" + std::string(field) + "'"));
  }
  EXPECT_THAT(Changed("qwen3_moe").remove("num_local_experts").load(), FailsWith(Code::kInvalidFile, "'num_experts'"));
}

TEST(Config, WrongTypeIsNamed) {
  const auto refused = Changed("qwen3_moe").set("hidden_size", "sixty-four").load();
  EXPECT_THAT(refused, FailsWith(Code::kInvalidFile, "'hidden_size' is \"sixty-four\""));
  EXPECT_THAT(refused, FailsWith(Code::kInvalidFile, "config.json"));
  EXPECT_THAT(Changed("qwen3_moe").set("tie_word_embeddings", "yes").load(),
              FailsWith(Code::kInvalidFile, "'tie_word_embeddings' is \"yes\""));
  EXPECT_THAT(Changed("qwen3_moe").set("rope_parameters", 7).load(),
              FailsWith(Code::kInvalidFile, "'rope_parameters'"));
  EXPECT_THAT(Changed("qwen3_moe").set("eos_token_id", text("[2, \"x\"]")).load(),
              FailsWith(Code::kInvalidFile, "eos_token_id[1]"));
  EXPECT_THAT(Changed("qwen3_moe").set("quantization_config", "fp8").load(),
              FailsWith(Code::kInvalidFile, "quantization_config"));
}

// ---- contradictions ---------------------------------------------------------------------------------------------

TEST(Config, HeadsAreNoMultipleOfKeyValueHeads) {
  EXPECT_THAT(Changed("qwen3_moe").set("num_key_value_heads", 3).load(),
              FailsWith(Code::kInvalidFile, "'num_attention_heads' is 4, want a multiple of num_key_value_heads 3"));
  EXPECT_THAT(Changed("qwen3_moe").set("num_key_value_heads", 8).load(),
              FailsWith(Code::kInvalidFile, "'num_key_value_heads' is 8"));
  EXPECT_THAT(Changed("nemotron_h").set("n_groups", 3).load(),
              FailsWith(Code::kInvalidFile, "want a multiple of n_groups 3"));
}

TEST(Config, TopKAboveExperts) {
  EXPECT_THAT(Changed("qwen3_moe").set("num_experts_per_tok", 9).load(),
              FailsWith(Code::kInvalidFile, "'num_experts_per_tok' is 9, want at most the 8 experts"));
  EXPECT_THAT(Changed("qwen3_moe").set("num_experts_per_tok", 0).load(),
              FailsWith(Code::kInvalidFile, "'num_experts_per_tok' is 0"));
}

TEST(Config, GroupsThatLeaveTooFewExperts) {
  EXPECT_THAT(Changed("nemotron_h_groups").set("topk_group", 1).set("num_experts_per_tok", 8).load(),
              FailsWith(Code::kInvalidFile, "do not leave 8 experts to choose from"));
  EXPECT_THAT(Changed("nemotron_h").set("n_group", 3).load(), FailsWith(Code::kInvalidFile, "n_group 3"));
  EXPECT_THAT(Changed("nemotron_h").set("n_group", 2).set("topk_group", 4).load(),
              FailsWith(Code::kInvalidFile, "topk_group 4"));
}

TEST(Config, HeadsWithoutDimensions) {
  EXPECT_THAT(
      Changed("qwen3_moe").remove("head_dim").set("num_attention_heads", 128).set("num_key_value_heads", 2).load(),
      FailsWith(Code::kInvalidFile, "heads of 0 dimensions"));
  EXPECT_THAT(Changed("qwen3_moe").set("head_dim", 15).load(), FailsWith(Code::kInvalidFile, "15 rotated dimensions"));
}

TEST(Config, RotationsThatAreNotFinite) {
  const auto rope = [](const char* json) { return Changed("mixtral").set("rope_parameters", text(json)).load(); };
  EXPECT_THAT(rope(R"({"rope_type": "linear", "factor": 0})"),
              FailsWith(Code::kInvalidFile, "'rope_parameters.factor' is 0"));
  EXPECT_THAT(rope(R"({"rope_type": "linear"})"), FailsWith(Code::kInvalidFile, "'rope_parameters.factor'"));
  EXPECT_THAT(rope(R"({"rope_type": "dynamic", "factor": -2})"), FailsWith(Code::kInvalidFile, "is -2"));
  EXPECT_THAT(rope(R"({"rope_type": "dynamic", "factor": 1, "alpha": 1000})"), FailsWith(Code::kUnsupported, "alpha"));
  EXPECT_THAT(rope(R"({"rope_type": "yarn", "factor": NaN})"), FailsWith(Code::kInvalidFile, "factor"));
  EXPECT_THAT(rope(R"({"rope_type": "yarn", "factor": 4, "beta_fast": 0})"),
              FailsWith(Code::kInvalidFile, "beta_fast"));
  EXPECT_THAT(rope(R"({"rope_type": "default", "rope_theta": 0})"), FailsWith(Code::kInvalidFile, "rope_theta"));
  EXPECT_THAT(rope(R"({"rope_type": "default", "rope_theta": Infinity})"), FailsWith(Code::kInvalidFile, "rope_theta"));
  EXPECT_THAT(rope(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 3})"),
              FailsWith(Code::kInvalidFile, "high_freq_factor"));
  EXPECT_THAT(rope(R"({"rope_type": "longrope", "factor": 4, "short_factor": [1, 1], "long_factor": [1, 1]})"),
              FailsWith(Code::kInvalidFile, "'rope_parameters.short_factor' has 2 values, want 8"));
  EXPECT_THAT(rope(R"({"rope_type": "longrope", "factor": 4, "short_factor": [1, 1, 1, 1, 0, 1, 1, 1]})"),
              FailsWith(Code::kInvalidFile, "short_factor"));
}

// A field that the kind of rotation does not have may mean another one.
TEST(Config, UnknownFieldsOfARotation) {
  for (const char* fields :
       {R"({"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": 0.1})",
        R"({"rope_type": "default", "factor": 2.0})", R"({"full_attention": {"rope_theta": 1e6}})"}) {
    EXPECT_THAT(Changed("qwen3_moe").set("rope_parameters", text(fields)).load(),
                FailsWith(Code::kUnsupported, "is not known to qwen3_moe"));
  }
  EXPECT_THAT(Changed("gemma4_text")
                  .set("rope_parameters", text(R"({"full_attention": {"rope_theta": 1e6, "turns": 2},
                                           "sliding_attention": {"rope_theta": 1e4}})"))
                  .load(),
              FailsWith(Code::kUnsupported, "'rope_parameters.full_attention.turns'"));
}

TEST(Config, NumbersThatAreNotFinite) {
  const double nan = std::nan(""), infinity = INFINITY;
  for (const double bad : {nan, infinity, -1.0}) {
    EXPECT_THAT(Changed("qwen3_moe").set("rms_norm_eps", bad).load(), FailsWith(Code::kInvalidFile, "'rms_norm_eps'"));
    EXPECT_THAT(Changed("olmoe").set("clip_qkv", bad).load(), FailsWith(Code::kInvalidFile, "'clip_qkv'"));
    EXPECT_THAT(Changed("nemotron_h").set("layer_norm_epsilon", bad).load(),
                FailsWith(Code::kInvalidFile, "'layer_norm_epsilon'"));
    EXPECT_THAT(Changed("nemotron_h").set("time_step_min", bad).load(),
                FailsWith(Code::kInvalidFile, "'time_step_min'"));
  }
  EXPECT_THAT(Changed("nemotron_h").set("routed_scaling_factor", nan).load(),
              FailsWith(Code::kInvalidFile, "'routed_scaling_factor'"));
}

// ---- numbers that no model has ----------------------------------------------------------------------------------

#if defined(CADRE_TEST_SANITIZED)
constexpr std::int64_t kMemoryBound = std::int64_t{1} << 30;
#else
constexpr std::int64_t kMemoryBound = std::int64_t{64} << 20;
#endif

std::int64_t resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

TEST(Config, HugeNumbersEndAtOnce) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> fields = {
      {"qwen3_moe",
       {"num_hidden_layers", "num_local_experts", "hidden_size", "vocab_size", "num_attention_heads", "head_dim",
        "num_key_value_heads", "moe_intermediate_size", "num_experts_per_tok", "eos_token_id"}},
      {"qwen2_moe", {"num_hidden_layers", "num_experts", "shared_expert_intermediate_size"}},
      {"deepseek_v2", {"n_group", "topk_group", "n_shared_experts", "kv_lora_rank"}},
      {"deepseek_v3",
       {"num_hidden_layers", "n_routed_experts", "num_attention_heads", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_group", "topk_group", "n_shared_experts",
        "first_k_dense_replace", "intermediate_size", "num_nextn_predict_layers"}},
      {"gemma4_text",
       {"num_hidden_layers", "num_experts", "top_k_experts", "moe_intermediate_size", "intermediate_size",
        "num_attention_heads", "num_key_value_heads", "head_dim"}},
      {"llama4_text",
       {"num_hidden_layers", "num_local_experts", "num_experts_per_tok", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "head_dim"}},
      {"gpt_oss", {"num_hidden_layers", "num_local_experts", "intermediate_size", "num_attention_heads", "head_dim"}},
      {"granitemoe", {"num_hidden_layers", "num_local_experts", "intermediate_size", "num_key_value_heads"}},
      {"granitemoehybrid",
       {"num_hidden_layers", "num_local_experts", "shared_intermediate_size", "mamba_n_heads", "mamba_d_head",
        "mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_n_groups"}},
      {"mixtral", {"num_hidden_layers", "num_local_experts", "intermediate_size"}},
      {"phimoe", {"num_hidden_layers", "num_local_experts", "intermediate_size", "num_key_value_heads"}},
      {"olmoe", {"num_hidden_layers", "num_experts", "intermediate_size"}},
      {"nemotron_h",
       {"num_hidden_layers", "n_routed_experts", "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size",
        "conv_kernel", "moe_latent_size", "n_shared_experts", "n_group", "topk_group",
        "moe_shared_expert_intermediate_size"}}};
  const std::vector<Json> values = {Json(std::int64_t{1} << 30),
                                    Json((std::int64_t{1} << 31) - 1),
                                    Json(std::int64_t{1} << 31),
                                    Json(std::int64_t{1} << 62),
                                    Json(Json::kIntMin),
                                    Json(-1),
                                    Json(0.5),
                                    Json(1e300),
                                    Json(std::nan("")),
                                    Json(true),
                                    Json(65536)};
  const std::int64_t before = resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [model, keys] : fields) {
    for (const char* key : keys) {
      for (const Json& value : values) {
        const auto refused = Changed(model).set(key, value).load();
        // The one field here that names no tensor: any token id may end a text.
        if (std::string_view(key) == "eos_token_id" && refused.ok()) {
          EXPECT_TRUE(value.is_int()) << value.dump();
          continue;
        }
        ASSERT_FALSE(refused.ok()) << model << ": " << key << " = " << describe(value);
        EXPECT_TRUE(refused.status().code() == Code::kInvalidFile || refused.status().code() == Code::kUnsupported)
            << refused.status().message();
      }
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_LT(resident_bytes() - before, kMemoryBound);
}

// All at once, so that sizes meet in products and sums.
TEST(Config, HugeNumbersTogether) {
  for (const char* model : {"qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "nemotron_h", "deepseek_v2", "deepseek_v3",
                            "gpt_oss", "granitemoeshared", "granitemoehybrid", "llama4_text", "gemma4_text"}) {
    for (const std::int64_t huge : {std::int64_t{65536}, std::int64_t{1} << 20, (std::int64_t{1} << 31) - 1}) {
      Changed changed(model);
      const Json config = Json::parse_file((golden_dir(model) / "config.json").string()).value();
      for (const auto& [key, value] : config.members()) {
        // These two are refused for what they ask, whatever the number.
        if (key == "hidden_size_per_layer_input" || key == "num_kv_shared_layers") continue;
        if (value.is_int() && key != "hidden_size" && key != "vocab_size") changed.set(key, huge);
      }
      const auto refused = changed.load();
      ASSERT_FALSE(refused.ok()) << model << ", " << huge;
      EXPECT_EQ(refused.status().code(), Code::kInvalidFile) << refused.status().message();
    }
  }
}

}  // namespace
}  // namespace cadre::test
