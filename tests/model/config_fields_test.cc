// Fields of config.json that nothing reads are refused by name; those of published configs and of what transformers
// writes pass. The files of tests/data/config_fields hold the fields; sizes are those of the goldens.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "model/config_fields.h"
#include "model/config_overrides.h"
#include "model/golden.h"
#include "model/model_files.h"
#include "support/exec_fixture.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

Json text(const std::string& json) { return Json::parse(json, "test").value(); }

Json config_of(const std::string& golden) {
  return Json::parse_file((golden_dir(golden) / "config.json").string()).value();
}

// A golden's weights under another config.
class Folder {
 public:
  explicit Folder(const std::string& golden) {
    std::filesystem::copy(golden_dir(golden) / "model.safetensors", dir_ / "model.safetensors");
  }
  Folder& config(const Json& json) {
    std::ofstream(dir_ / "config.json") << json.dump({.non_finite = JsonDumpOptions::NonFinite::kPython});
    return *this;
  }
  Result<std::unique_ptr<Model>> load(const std::string& overrides = {}) const {
    ModelOptions options;
    options.dir = dir_.path();
    options.device = make_cpu_device();
    options.hf_overrides = overrides;
    return Model::load(std::move(options));
  }
  std::string path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

// ---- what passes -------------------------------------------------------------------------------------------------

// The fields of `published` with the golden's values where it has them, and the golden's other fields.
Json with_sizes_of(const Json& published, const Json& golden, const std::set<std::string>& keep) {
  const auto known = [&](const std::string& key) { return golden.find(key) != nullptr; };
  Json out = golden;
  const bool version_4 = published.has("rope_theta") || published.has("rope_scaling");
  if (version_4 && known("rope_parameters")) out = out.with("rope_parameters", nullptr);
  const std::set<std::string> tensors = {"attention_bias", "attention_k_eq_v",    "enable_moe_block", "lm_head_bias",
                                         "model_type",     "tie_word_embeddings", "use_qk_norm"};
  const std::map<std::string, std::vector<const char*>> same = {
      {"num_experts", {"num_local_experts", "n_routed_experts"}},
      {"num_local_experts", {"num_experts", "n_routed_experts"}},
      {"attention_head_dim", {"head_dim"}},
      {"rotary_dim", {"head_dim"}},
      {"experts_per_token", {"num_experts_per_tok"}}};
  for (const auto& [key, value] : published.members()) {
    Json now = value;
    // What is a choice and no size stays, unless it says which tensors there are.
    const bool choice = (value.is_bool() || value.is_string()) && !tensors.contains(key);
    if (known(key) && !choice && !keep.contains(key)) now = *golden.find(key);
    if (const auto other = same.find(key); other != same.end() && !known(key)) {
      for (const char* name : other->second) {
        if (golden.has(name)) now = *golden.find(name);
      }
    }
    if (key == "rope_scaling" && value.is_object() && value.has("long_factor")) {
      const std::vector<double> ones(static_cast<std::size_t>(golden.get_int("head_dim").value() / 2), 1.0);
      now = now.with("long_factor", Json::array(ones)).with("short_factor", Json::array(ones));
    }
    out = out.with(key, now);
  }
  return out;
}

void expect_passes(const Json& published, const std::string& golden, const std::set<std::string>& keep = {}) {
  Folder folder(golden);
  EXPECT_THAT(folder.config(with_sizes_of(published, config_of(golden), keep)).load(), Succeeds());
}

Json data(const char* file) {
  return Json::parse_file(std::string(CADRE_SOURCE "/tests/data/config_fields/") + file).value();
}

TEST(ConfigFields, OfPublishedModels) {
  const Json all = data("published.json");
  std::set<std::string> goldens;
  for (const auto& [name, entry] : all.members()) {
    SCOPED_TRACE(name);
    std::set<std::string> keep;
    if (entry.has("keep")) {
      for (const std::string& key : entry.get_string_list("keep").value()) keep.insert(key);
    }
    const std::string golden = entry.get_string("golden").value();
    Json config = entry.get_object("config").value();
    // The golden's layers are others.
    if (config.has("hybrid_override_pattern")) {
      config = config.with("hybrid_override_pattern", nullptr).with("num_hidden_layers", nullptr);
    }
    expect_passes(config, golden, keep);
    goldens.insert(config_of(golden).get_string("model_type").value());
  }
  EXPECT_EQ(goldens.size(), 23u);  // every family; kimi_k2 is on deepseek_v3's weights
}

// Whole configs, at their size.
TEST(ConfigFields, OfTheExamples) {
  std::set<std::string> types;
  for (const auto& entry : std::filesystem::directory_iterator(CADRE_SOURCE "/examples/specs")) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename());
    ModelOptions options;
    options.config = Json::parse_file(entry.path().string()).value();
    options.dir = "example";
    options.weights = WeightOrigin::kNone;
    options.shapes_only = true;
    options.device = make_cpu_device();
    const auto model = Model::load(std::move(options));
    ASSERT_THAT(model, Succeeds());
    types.insert((*model)->config().model_type);
  }
  EXPECT_GE(types.size(), 20u);
}

TEST(ConfigFields, ThatTransformersWrites) {
  for (const char* file : {"transformers_4.json", "transformers_5.json"}) {
    const Json all = data(file);
    for (const auto& [family, config] : all.members()) {
      SCOPED_TRACE(std::string(file) + ": " + family);
      expect_passes(config, family);
    }
  }
}

TEST(ConfigFields, OfGoldens) {
  // What is read must not be called harmless: the file's own type and end tokens are no mathematics, and the number of
  // layers that predict further tokens says which tensors are left alone.
  const std::set<std::string> allowed = {"model_type", "eos_token_id", "num_nextn_predict_layers"};
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    ModelOptions options;
    options.dir = golden_dir(name);
    options.device = make_cpu_device();
    const auto model = Model::load(std::move(options));
    ASSERT_THAT(model, Succeeds());
    const Json& config = (*model)->config().whole;
    std::set<std::string> unasked;
    for (const Json::Unasked& field : config.unasked()) unasked.insert(field.path.front());
    for (const auto& [key, value] : config.unwatched_members()) {
      if (unasked.contains(key) || allowed.contains(key)) continue;
      EXPECT_FALSE(is_harmless_field(key)) << key;
    }
  }
}

// ---- what does not -----------------------------------------------------------------------------------------------

TEST(ConfigFields, UnknownOnesAreRefusedInEveryFamily) {
  const std::pair<const char*, double> fields[] = {
      {"attn_logit_softcapping", 50.0}, {"residual_multiplier", 0.25}, {"some_new_scale", 2.0}};
  int read = 0;
  for (const std::string& name : golden_models()) {
    const Json config = config_of(name);
    Folder folder(name);
    for (const auto& [field, value] : fields) {
      SCOPED_TRACE(name + ": " + field);
      folder.config(config.with(field, value));
      if (config.has(field)) {  // the family knows it: it counts
        ++read;
        auto changed = open_golden({.model_dir = folder.path()});
        ASSERT_THAT(changed, Succeeds());
        const GoldenCase longest = read_golden(golden_dir(name) / "golden.safetensors")[2];
        EXPECT_GT(relative_error(changed->logits(longest.ids, -1, {256}), longest.logits), 10 * kGoldenBound);
        continue;
      }
      const auto refused = folder.load();
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.status().code(), Code::kUnsupported);
      const std::string want = "/config.json: field '" + std::string(field) + "' (" + Json(value).dump() +
                               ") is not known to " + config.get_string("model_type").value();
      EXPECT_NE(refused.status().message().find(want), std::string::npos) << refused.status().message();
    }
  }
  EXPECT_EQ(read, 3);  // the three of Granite
}

// The flag that a message suggests, as the shell hands it on.
std::string suggested(const Status& status) {
  const std::string flag = "--hf-overrides '";
  const std::size_t begin = status.message().find(flag), end = status.message().rfind('\'');
  if (begin == std::string::npos) return "";
  std::string text = status.message().substr(begin + flag.size(), end - begin - flag.size());
  const std::string escaped = "'\\''";
  for (std::size_t at = 0; (at = text.find(escaped, at)) != std::string::npos; ++at) {
    text.replace(at, escaped.size(), "'");
  }
  return text;
}

void expect_refused(Folder& folder, const Json& config, const std::vector<std::string>& says) {
  folder.config(config);
  const auto refused = folder.load();
  ASSERT_FALSE(refused.ok());
  for (const std::string& part : says) {
    EXPECT_NE(refused.status().message().find(part), std::string::npos) << part << " in " << refused.status().message();
  }
  EXPECT_THAT(folder.load(suggested(refused.status())), Succeeds()) << refused.status().message();
}

TEST(ConfigFields, TheMessageSaysAllAndWhatToDo) {
  const Json config = config_of("qwen3_moe");
  Folder folder("qwen3_moe");
  expect_refused(folder, config.with("new_scale", 2.0).with("mup", true).with("kinds", text("[1, 2]")),
                 {"fields 'new_scale' (2.0), 'mup' (true), 'kinds' ([1, 2]) are not known to qwen3_moe",
                  R"(--hf-overrides '{"new_scale": null, "mup": null, "kinds": null}')"});
  // As a shell wants it.
  const std::string name = "'; echo; '";
  expect_refused(folder, config.with(name, 1), {R"(--hf-overrides '{"'\''; echo; '\''": null}')"});
}

TEST(ConfigFields, ManyAreListedInPartAndFast) {
  const Json config = config_of("qwen3_moe");
  std::vector<Json::Member> members(config.members().begin(), config.members().end());
  Folder folder("qwen3_moe");
  const auto with_more = [&](int from, int to) {
    for (int i = from; i < to; ++i) members.emplace_back("field_" + std::to_string(i), i);
    folder.config(Json::object(members));
  };
  with_more(0, 10);
  const auto ten = folder.load();
  ASSERT_FALSE(ten.ok());
  EXPECT_THAT(folder.load(suggested(ten.status())), Succeeds());
  with_more(10, 20000);
  const auto start = std::chrono::steady_clock::now();
  const auto refused = folder.load();
  ASSERT_THAT(refused, FailsWith(Code::kUnsupported, "'field_9' (9) and 19990 more are not known to qwen3_moe"));
  EXPECT_TRUE(refused.status().message().ends_with(" take them out with --hf-overrides"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // a suggestion would take minutes
}

TEST(ConfigFields, InsideObjects) {
  const Json config = config_of("qwen3_moe");
  Folder folder("qwen3_moe");
  const Json rope = *config.find("rope_parameters");
  expect_refused(folder, config.with("rope_parameters", rope.with("attention_factor", 1.5)),
                 {"'rope_parameters.attention_factor' (1.5)", R"({"rope_parameters": {"rope_)"});
  expect_refused(folder, config.with("rope_parameters", rope.with("a", 1).with("b", 2)).with("c", 3),
                 {"'rope_parameters.a' (1), 'rope_parameters.b' (2), 'c' (3)"});
  expect_refused(folder, config.with("quantization_config", text(R"({"quant_method": "fp8", "rotate": "hadamard"})")),
                 {"'quantization_config.rotate' (\"hadamard\")"});
  Folder gemma("gemma4_text");
  const Json types = *config_of("gemma4_text").find("rope_parameters");
  const Json full = *types.find("full_attention");
  expect_refused(gemma,
                 config_of("gemma4_text").with("rope_parameters", types.with("full_attention", full.with("x", 1))),
                 {"'rope_parameters.full_attention.x' (1)"});
}

TEST(ConfigFields, OfAWrappersTextPart) {
  Folder folder("qwen3_moe");
  const Json own = config_of("qwen3_moe");
  const auto wrapped = [](const Json& inner) {
    return Json::object(
        {{"model_type", "some_vl"}, {"text_config", inner}, {"vision_config", text(R"({"depth": 2})")}});
  };
  expect_refused(folder, wrapped(own.with("new_scale", 2.0)),
                 {"'text_config.new_scale' (2.0)", R"({"text_config": {"new_scale": null}})"});
  const Json rope = own.find("rope_parameters")->with("a", 1);
  expect_refused(folder, wrapped(own.with("rope_parameters", rope)), {"'text_config.rope_parameters.a' (1)"});
  expect_refused(folder, wrapped(own).with("quantization_config", text(R"({"quant_method": "fp8", "rotate": 1})")),
                 {"'quantization_config.rotate' (1)"});
  // The other parts may have what they like.
  EXPECT_THAT(folder.config(wrapped(own).with("projector_scale", 0.5)).load(), Succeeds());
}

TEST(ConfigFields, ValuesThatSayNothing) {
  Folder folder("qwen3_moe");
  Json config = config_of("qwen3_moe");
  for (const char* nothing : {"null", "false", "\"\"", "[]", "{}"}) {
    config = config.with(std::string("field_") + nothing, text(nothing));
  }
  EXPECT_THAT(folder.config(config.with("new_multiplier", 1.0)).load(), Succeeds());
  expect_refused(folder, config.with("is_causal", false), {"'is_causal' (false)"});
  expect_refused(folder, config.with("new_scale", 0), {"'new_scale' (0)"});
  expect_refused(folder, config.with("new_scale", 1.0), {"'new_scale' (1.0)"});
  expect_refused(folder, config.with("new_multiplier", 0.99), {"'new_multiplier' (0.99)"});
}

TEST(ConfigFields, HarmlessOnesOfPublishedConfigs) {
  Json config = config_of("qwen3_moe");
  for (const char* name :
       {"max_sequence_length", "model_max_length", "max_seq_len", "num_labels", "neftune_noise_alpha"}) {
    config = config.with(name, 4096);
  }
  for (const char* name : {"model_name", "summary_type", "flash_attn", "use_flash_attn_rotary", "chat_template",
                           "padding_side", "eos_token", "bos_token", "pad_token"}) {
    config = config.with(name, "text");
  }
  for (const char* name : {"transformers.js_config", "custom_pipelines"})
    config = config.with(name, text(R"({"a": 1})"));
  config =
      config.with("keys_to_ignore_at_inference", text(R"(["past_key_values"])")).with("_flash_attn_2_enabled", true);
  Folder folder("qwen3_moe");
  EXPECT_THAT(folder.config(config).load(), Succeeds());
}

TEST(ConfigFields, TwoNamesOfOneFieldMustAgree) {
  Folder folder("gpt_oss");
  const Json config = config_of("gpt_oss");
  EXPECT_THAT(folder.config(config.with("experts_per_token", *config.find("num_experts_per_tok"))).load(), Succeeds());
  EXPECT_THAT(folder.config(config.with("experts_per_token", 1)).load(),
              FailsWith(Code::kInvalidFile, "experts_per_token is 1, which mean the same"));
}

// Fields that a family does not need to read and that may say something else than what it does.
TEST(ConfigFields, ThatNameAnotherModel) {
  struct Case {
    const char *model, *field, *value;
  };
  for (const Case& c : std::initializer_list<Case>{{"qwen3_moe", "qkv_bias", "true"},
                                                   {"qwen3_moe", "use_qk_norm", "false"},
                                                   {"qwen3_moe", "shared_expert_intermediate_size", "64"},
                                                   {"mixtral", "norm_topk_prob", "false"},
                                                   {"minimax_m2", "qk_norm_type", "\"per_head\""},
                                                   {"minimax_m2", "scoring_func", "\"softmax\""},
                                                   {"minimax_m2", "layernorm_mlp_beta", "0.5"},
                                                   {"minimax_m2", "sliding_window", "128"},
                                                   {"dots1", "scoring_func", "\"softmax\""},
                                                   {"dots1", "moe_layer_freq", "2"},
                                                   {"glm4_moe", "topk_method", "\"greedy\""},
                                                   {"granitemoe", "position_embedding_type", "\"nope\""},
                                                   {"granitemoeshared", "normalization_function", "\"layernorm\""},
                                                   {"hunyuan_v1_moe", "norm_type", "\"layer\""},
                                                   {"hunyuan_v1_moe", "use_rotary_pos_emb", "false"},
                                                   {"ernie4_5_moe", "moe_use_aux_free", "false"},
                                                   {"nemotron_h", "residual_in_fp32", "true"},
                                                   {"phimoe", "norm_topk_prob", "true"},
                                                   {"llama4_text", "norm_topk_prob", "true"},
                                                   {"qwen3_next", "use_sliding_window", "true"}}) {
    SCOPED_TRACE(std::string(c.model) + ": " + c.field);
    Folder folder(c.model);
    Json config = config_of(c.model).with(c.field, text(c.value));
    if (std::string_view(c.field) == "use_sliding_window") config = config.with("sliding_window", 4);
    const auto refused = folder.config(config).load();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(
        refused.status().message().find(std::string_view(c.field) == "use_sliding_window" ? "sliding_window" : c.field),
        std::string::npos)
        << refused.status().message();
  }
}

// Which layers of Qwen2-MoE slide is what layer_types says.
TEST(ConfigFields, SlidingLayersOfQwen2) {
  Folder folder("qwen2_moe");
  const Json config = config_of("qwen2_moe").with("sliding_window", 4);
  const GoldenCase longest = read_golden(golden_dir("qwen2_moe") / "golden.safetensors")[2];
  const auto error_of = [&](const Json& changed) {
    folder.config(changed);
    auto model = open_golden({.model_dir = folder.path()});
    EXPECT_THAT(model, Succeeds());
    return relative_error(model->logits(longest.ids, -1, {256}), longest.logits);
  };
  const Json first = text(R"(["sliding_attention", "full_attention"])");
  EXPECT_LE(error_of(config), kGoldenBound);
  EXPECT_LE(error_of(config.with("layer_types", first)), kGoldenBound);        // switched off
  EXPECT_LE(error_of(config.with("use_sliding_window", true)), kGoldenBound);  // no layer slides
  EXPECT_GT(error_of(config.with("use_sliding_window", true).with("layer_types", first)), 10 * kGoldenBound);
}

// Version 5 pads the numbers of layers: {"05": ...}.
TEST(ConfigFields, LayerNumbersWithZeros) {
  Folder folder("gemma4_text");
  const Json config = config_of("gemma4_text");
  for (const char* layer : {"1", "01"}) {
    const Json smaller = Json::object({{layer, text(R"({"head_dim": 8})")}});
    EXPECT_THAT(folder.config(config.with("per_layer_config", smaller)).load(),
                FailsWith(Code::kInvalidFile, "model.layers.1.self_attn."));
  }
  EXPECT_THAT(folder.config(config.with("per_layer_config", text(R"({"x": {}})"))).load(),
              FailsWith(Code::kInvalidFile, "has 'x'"));
  EXPECT_THAT(folder.config(config.with("per_layer_config", text(R"({"1": {}, "01": {}})"))).load(),
              FailsWith(Code::kInvalidFile, "has '01'"));
  EXPECT_THAT(folder.config(config.with("per_layer_config", text(R"({"1": 3})"))).load(),
              FailsWith(Code::kInvalidFile, "has '1'"));
}

// ---- overrides ---------------------------------------------------------------------------------------------------

std::string overridden(const char* config, const char* overrides) {
  return apply_overrides(text(config), parse_overrides(overrides).value()).dump();
}

TEST(ConfigOverrides, AsVllmAppliesThem) {
  EXPECT_EQ(overridden(R"({"a": 1, "b": 2})", R"({"b": null, "c": [1]})"), R"({"a": 1, "b": null, "c": [1]})");
  // An object is replaced, a nested model's config is not.
  EXPECT_EQ(overridden(R"({"rope_scaling": {"type": "linear", "factor": 2}})", R"({"rope_scaling": {"type": "yarn"}})"),
            R"({"rope_scaling": {"type": "yarn"}})");
  EXPECT_EQ(overridden(R"({"text_config": {"a": 1, "r": {"x": 1, "y": 2}}})", R"({"text_config": {"r": {"x": 5}}})"),
            R"({"text_config": {"a": 1, "r": {"x": 5, "y": 2}}})");
  EXPECT_EQ(overridden(R"({"quantization_config": {"a": 1}})", R"({"quantization_config": {"b": 1}})"),
            R"({"quantization_config": {"b": 1}})");
  EXPECT_EQ(overridden(R"({"text_config": null})", R"({"text_config": {"a": 1}})"), R"({"text_config": {"a": 1}})");
}

TEST(ConfigOverrides, MustBeAnObject) {
  EXPECT_THAT(parse_overrides(""), Succeeds());
  EXPECT_THAT(parse_overrides("[1]"), FailsWith(Code::kInvalidArgument, "--hf-overrides is an array, want"));
  EXPECT_THAT(parse_overrides("{\"a\": }"), FailsWith(Code::kInvalidArgument, "--hf-overrides"));
  EXPECT_THAT(parse_overrides("rope_theta=1"), FailsWith(Code::kInvalidArgument, "--hf-overrides"));
  EXPECT_THAT(parse_overrides(R"({"a": 1, "a": 2})"), FailsWith(Code::kInvalidArgument, "twice"));
}

TEST(ConfigOverrides, ChangeTheModelAndSaySo) {
  Folder folder("qwen3_moe");
  folder.config(config_of("qwen3_moe"));
  const auto plain = folder.load();
  ASSERT_THAT(plain, Succeeds());
  EXPECT_TRUE((*plain)->notes().empty());
  const auto changed = folder.load(R"({"max_position_embeddings": 77, "rope_scaling": null})");
  ASSERT_THAT(changed, Succeeds());
  EXPECT_EQ((*changed)->config().max_context, 77);
  const std::string was = config_of("qwen3_moe").find("max_position_embeddings")->dump();
  EXPECT_EQ((*changed)->notes(), std::vector<std::string>{"config override: max_position_embeddings = 77 (was " + was +
                                                          "), rope_scaling = null (was absent)"});
  EXPECT_THAT(folder.load(R"({"num_attention_heads": "many"})"),
              FailsWith(Code::kInvalidFile, "config override: num_attention_heads = \"many\""));
  EXPECT_THAT(folder.load(R"({"hidden_size": -1})"),
              FailsWith(Code::kInvalidFile, "config override: hidden_size = -1"));
  // The file has more layers.
  EXPECT_THAT(folder.load(R"({"num_hidden_layers": 1})"),
              FailsWith(Code::kInvalidFile, "config override: num_hidden_layers = 1 (was "));
  EXPECT_THAT(folder.load(R"({"num_hidden_layers": 1})"), FailsWith(Code::kInvalidFile, "have no place in the model"));
  EXPECT_THAT(folder.load("{"), FailsWith(Code::kInvalidArgument, "--hf-overrides"));
}

TEST(ConfigOverrides, ThatNothingReadsAreRefused) {
  Folder folder("qwen3_moe");
  const Json config = config_of("qwen3_moe");
  folder.config(config.with("new_scale", 2.0).with("torch_dtype", "float32"));
  for (const char* value : {"null", "false", "4"}) {
    EXPECT_THAT(folder.load(R"({"new_scale": null, "sliding_windw": )" + std::string(value) + "}"),
                FailsWith(Code::kInvalidArgument,
                          "--hf-overrides: nothing reads 'sliding_windw' (" + std::string(value) + ")"));
  }
  EXPECT_THAT(folder.load(R"({"new_scale": 3.0})"), FailsWith(Code::kInvalidArgument, "nothing reads 'new_scale'"));
  EXPECT_THAT(folder.load(R"({"new_scale": null})"), Succeeds());
  EXPECT_THAT(folder.load(R"({"new_scale": null, "torch_dtype": null})"), Succeeds());
  EXPECT_THAT(folder.load(R"({"new_scale": null, "torch_dtype": "bfloat16"})"),
              FailsWith(Code::kInvalidArgument, "'torch_dtype' (\"bfloat16\") changes nothing here"));
  EXPECT_THAT(folder.load(R"({"new_scale": null, "temperature": 0.5})"),
              FailsWith(Code::kInvalidArgument, "'temperature' (0.5) changes nothing here"));
  // An object takes the place of the file's: what is as it was there passes.
  const Json rope = *config.find("rope_parameters");
  folder.config(config.with("rope_parameters", rope.with("attn_dropout", 0.5)));
  const auto with = [&](const Json& fields) { return folder.load(Json::object({{"rope_parameters", fields}}).dump()); };
  EXPECT_THAT(with(rope.with("attn_dropout", 0.5)), Succeeds());
  EXPECT_THAT(with(rope.with("attn_dropout", 0.25)),
              FailsWith(Code::kInvalidArgument, "'rope_parameters.attn_dropout' (0.25) changes nothing here"));
  EXPECT_THAT(with(rope.with("facto", 2)),
              FailsWith(Code::kInvalidArgument, "nothing reads 'rope_parameters.facto' (2)"));
}

TEST(ConfigOverrides, AreNotThousands) {
  std::vector<Json::Member> members;
  for (int i = 0; i < 257; ++i) members.emplace_back("f" + std::to_string(i), i);
  EXPECT_THAT(parse_overrides(Json::object(members).dump()), FailsWith(Code::kInvalidArgument, "has 257 fields"));
  EXPECT_THAT(parse_overrides(Json::object({{"text_config", Json::object(members)}}).dump()),
              FailsWith(Code::kInvalidArgument, "has 257 fields in one object, want at most 256"));
  members.pop_back();
  EXPECT_THAT(parse_overrides(Json::object(members).dump()), Succeeds());
}

TEST(ConfigOverrides, OfAWrapper) {
  Folder folder("qwen3_moe");
  folder.config(Json::object({{"model_type", "some_vl"},
                              {"text_config", config_of("qwen3_moe")},
                              {"vision_config", text(R"({"depth": 2})")}}));
  const auto changed = folder.load(R"({"text_config": {"max_position_embeddings": 77}})");
  ASSERT_THAT(changed, Succeeds());
  EXPECT_EQ((*changed)->config().max_context, 77);
  EXPECT_THAT(folder.load(R"({"max_position_embeddings": 77})"),
              FailsWith(Code::kInvalidArgument, R"(give {"text_config": {"max_position_embeddings": ...}})"));
  EXPECT_THAT(folder.load(R"({"tie_word_embeddings": null})"), Succeeds());
  EXPECT_THAT(folder.load(R"({"vision_config": {"depth": 1}})"),
              FailsWith(Code::kInvalidArgument,
                        "'vision_config' ({\"depth\": 1}) changes nothing: only the text part of this "
                        "some_vl model is run; leave it out"));
  EXPECT_THAT(folder.load(R"({"vision_config": {"depth": null}})"), Succeeds());  // the file has it
  EXPECT_THAT(folder.load(R"({"vision_config": {"width": null}})"),
              FailsWith(Code::kInvalidArgument, "'vision_config' ({\"width\": null})"));
  EXPECT_THAT(folder.load(R"({"text_config": {"sliding_windw": false}})"),
              FailsWith(Code::kInvalidArgument, "--hf-overrides: nothing reads 'text_config.sliding_windw' (false)"));
  EXPECT_THAT(folder.load(R"({"text_config": {"temperature": 1}})"),
              FailsWith(Code::kInvalidArgument, "'text_config.temperature' (1) changes nothing here"));
}

}  // namespace
}  // namespace cadre::test
