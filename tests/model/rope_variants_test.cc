// Every family with every kind of rotary embedding that transformers knows: what transformers computes, or a refusal
// that names the kind.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "model/families/family.h"
#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

// The plain rotation is what the goldens of all families have.
constexpr const char* kKinds[] = {"linear", "dynamic", "yarn", "longrope", "llama3", "proportional"};

// Golden weights with changed configs.
struct Variants {
  std::map<std::string, std::vector<Json::Member>> changes;  // by "family.kind"
  std::shared_ptr<const SafetensorsFile> golden;

  std::vector<float> logits(const std::string& name) const {
    const TensorInfo* tensor = golden->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<float> out(tensor->nbytes / sizeof(float));
    std::memcpy(out.data(), tensor->data, out.size() * sizeof(float));
    return out;
  }
};

Variants read_variants() {
  Variants all;
  const fs::path folder = extra_dir() / "models/rope_variants";
  const Json list = Json::parse_file((folder / "variants.json").string()).value();
  for (const Json& entry : list.items()) {
    const Json config = entry.get_object("config").value();
    all.changes[entry.get_string("family").value() + "." + entry.get_string("kind").value()] = {
        config.members().begin(), config.members().end()};
  }
  all.golden = SafetensorsFile::open(folder / "golden.safetensors").value();
  return all;
}

// rope_parameters of transformers 5 as rope_scaling, rope_theta and partial_rotary_factor of 4.
void to_version_4(ModelFiles& files) {
  const Json fields = files.config.get_object("rope_parameters").value();
  std::vector<Json::Member> scaling;
  for (const auto& [key, value] : fields.members()) {
    if (key == "rope_theta" || key == "partial_rotary_factor") {
      files.set(key, value);
    } else {
      scaling.emplace_back(key == "rope_type" ? "type" : key, value);
    }
  }
  files.remove("rope_parameters");
  files.set("rope_scaling", Json::object(scaling));
}

Result<std::vector<float>> last_logits(const ModelFiles& files, const std::string& golden) {
  const TempDir dir;
  files.write_config(dir.path());
  fs::create_symlink(golden_dir(golden) / "model.safetensors", dir / "model.safetensors");
  GoldenSetup setup;
  setup.model_dir = dir.path();
  setup.threads = 1;
  auto model = open_golden(setup);
  if (!model.ok()) return model.status();
  const GoldenCase longest = read_golden(golden_dir(golden) / "golden.safetensors")[2];
  const std::vector<float> all = model->logits(longest.ids, -1, {256});
  return std::vector<float>(all.end() - model->vocab, all.end());
}

ModelFiles config_of(const std::string& golden) {
  ModelFiles files;
  files.config = Json::parse_file((golden_dir(golden) / "config.json").string()).value();
  return files;
}

class RopeVariants : public testing::TestWithParam<std::string> {};

TEST_P(RopeVariants, EveryKindIsRightOrRefused) {
  static const Variants variants = read_variants();
  const std::string family = GetParam();
  const std::string golden = family == "kimi_k2" ? "deepseek_v3" : family;
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    const std::string name = golden + "." + kind;
    ModelFiles files = config_of(golden);
    files.set("model_type", family);
    if (!variants.changes.contains(name)) {
      // phimoe's long factors have a golden of their own, models/phimoe_longrope.
      if (name == "phimoe.longrope") continue;
      files.set("rope_parameters", Json::object({{"rope_type", kind},
                                                 {"rope_theta", 10000.0},
                                                 {"factor", 2.0},
                                                 {"short_mscale", 1.0},
                                                 {"long_mscale", 1.0},
                                                 {"original_max_position_embeddings", 16}}));
      EXPECT_THAT(last_logits(files, golden), FailsWith(Code::kUnsupported, "'" + kind + "'"));
      continue;
    }
    for (const auto& [key, value] : variants.changes.at(name)) files.set(key, value);
    const auto got = last_logits(files, golden);
    ASSERT_THAT(got, Succeeds());
    const std::vector<float> want = variants.logits(name);
    ASSERT_EQ(want.size(), 64u);
    EXPECT_LE(relative_error(std::span(*got).first(want.size()), want), kGoldenBound);
    // Another rotation than the family's own.
    const GoldenCase own = read_golden(golden_dir(golden) / "golden.safetensors")[2];
    EXPECT_GT(relative_error(std::span(own.logits).last(got->size()).first(want.size()), want), 10 * kGoldenBound);

    if (golden == "gemma4_text") continue;  // never had a version 4 config
    to_version_4(files);
    const auto older = last_logits(files, golden);
    ASSERT_THAT(older, Succeeds());
    EXPECT_EQ(*older, *got) << "as rope_scaling";
  }
}

std::vector<std::string> rotating_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    // No positions at all; tested below.
    if (family.model_type != "nemotron_h") names.emplace_back(family.model_type);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, RopeVariants, testing::ValuesIn(rotating_families()),
                         [](const auto& test) { return test.param; });

// What yarn and longrope may say besides.
TEST(RopeVariants, OptionalFields) {
  const Variants variants = read_variants();
  for (const char* kind : {"yarn_options", "yarn_mscale", "longrope_options"}) {
    SCOPED_TRACE(kind);
    const std::string name = std::string("mixtral.") + kind;
    ModelFiles files = config_of("mixtral");
    for (const auto& [key, value] : variants.changes.at(name)) files.set(key, value);
    const auto got = last_logits(files, "mixtral");
    ASSERT_THAT(got, Succeeds());
    const std::vector<float> want = variants.logits(name);
    EXPECT_LE(relative_error(std::span(*got).first(want.size()), want), kGoldenBound);
    const std::vector<float> plain = variants.logits(std::string("mixtral.") + (kind[0] == 'y' ? "yarn" : "longrope"));
    EXPECT_GT(relative_error(plain, want), 10 * kGoldenBound);
  }
}

// Its published configs carry fields of a rotation that the model does not have.
TEST(RopeVariants, NemotronHasNone) {
  const GoldenCase longest = read_golden(golden_dir("nemotron_h") / "golden.safetensors")[2];
  for (const char* kind : kKinds) {
    ModelFiles files = config_of("nemotron_h");
    files.set("rope_scaling", Json::object({{"type", kind}, {"factor", 2.0}}));
    const auto got = last_logits(files, "nemotron_h");
    ASSERT_THAT(got, Succeeds());
    EXPECT_LE(relative_error(*got, std::span(longest.logits).last(got->size())), kGoldenBound);
  }
}

// Version 5's object with a field of version 4 beside it that says something else.
TEST(RopeVariants, TwoPlacesMustAgree) {
  const auto with = [](const std::string& golden, const std::vector<Json::Member>& fields) {
    ModelFiles files = config_of(golden);
    for (const auto& [key, value] : fields) files.set(key, value);
    return last_logits(files, golden);
  };
  const Json rope = config_of("qwen3_moe").config.get_object("rope_parameters").value();
  const Json theta = *rope.find("rope_theta");
  const Json partial =
      Json::object({{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}});
  EXPECT_THAT(with("qwen3_moe", {{"rope_theta", theta}}), Succeeds());
  EXPECT_THAT(with("qwen3_moe", {{"rope_theta", nullptr}}), Succeeds());
  EXPECT_THAT(with("qwen3_moe", {{"rope_theta", 100}}),
              FailsWith(Code::kInvalidFile, "field 'rope_theta' is 100 and "));
  EXPECT_THAT(with("qwen3_moe", {{"rope_theta", 100}}),
              FailsWith(Code::kInvalidFile, "set rope_parameters.rope_theta, as an object"));
  EXPECT_THAT(with("glm4_moe", {{"rope_parameters", partial}, {"partial_rotary_factor", 0.5}}), Succeeds());
  EXPECT_THAT(with("glm4_moe", {{"rope_parameters", partial}, {"partial_rotary_factor", 0.25}}),
              FailsWith(Code::kInvalidFile, "set rope_parameters.partial_rotary_factor"));
  // Transformers writes the class's own factor outside as well, whatever the object has.
  const Json three_quarters = partial.with("partial_rotary_factor", 0.75);
  EXPECT_THAT(with("glm4_moe", {{"rope_parameters", three_quarters}, {"partial_rotary_factor", 0.5}}), Succeeds());
  const Json yarn = Json::object(
      {{"rope_type", "yarn"}, {"factor", 2.0}, {"rope_theta", 10000.0}, {"original_max_position_embeddings", 16}});
  EXPECT_THAT(with("mixtral", {{"rope_parameters", yarn}, {"original_max_position_embeddings", 16}}), Succeeds());
  EXPECT_THAT(with("mixtral", {{"rope_parameters", yarn}, {"original_max_position_embeddings", 32}}),
              FailsWith(Code::kInvalidFile, "set rope_parameters.original_max_position_embeddings"));
  EXPECT_THAT(with("mixtral", {{"rope_parameters", nullptr}, {"rope_scaling", yarn}, {"rope_theta", 500.0}}),
              FailsWith(Code::kInvalidFile, "set rope_scaling.rope_theta"));
  // Both objects.
  EXPECT_THAT(with("mixtral", {{"rope_parameters", yarn}, {"rope_scaling", yarn}}), Succeeds());
  EXPECT_THAT(with("mixtral", {{"rope_parameters", yarn}, {"rope_scaling", Json::object({})}}), Succeeds());
  EXPECT_THAT(with("mixtral", {{"rope_parameters", yarn}, {"rope_scaling", yarn.with("factor", 4)}}),
              FailsWith(Code::kInvalidFile, "give rope_parameters instead"));
  EXPECT_THAT(with("gemma4_text", {{"rope_scaling", yarn}}),
              FailsWith(Code::kInvalidFile, "give rope_parameters instead"));
}

TEST(RopeVariants, TwoNamesOfTheTypeMustAgree) {
  const auto with = [](const char* older, const char* type) {
    ModelFiles files = config_of("mixtral");
    files.set("rope_parameters",
              Json::object({{"rope_theta", 10000.0}, {"factor", 2.0}, {"type", older}, {"rope_type", type}}));
    return last_logits(files, "mixtral");
  };
  EXPECT_THAT(with("linear", "linear"), Succeeds());
  EXPECT_THAT(with("yarn", "linear"), FailsWith(Code::kInvalidFile, "rope_type' is 'linear' and "));
  EXPECT_THAT(with("yarn", "linear"), FailsWith(Code::kInvalidFile, "rope_parameters.type' is 'yarn'"));
  // Phi's former name: what is missing is of longrope.
  EXPECT_THAT(with("su", "longrope"), FailsWith(Code::kInvalidFile, "short_factor"));
}

// A kind that comes with the library of tomorrow.
TEST(RopeVariants, AnUnknownKindIsRefusedEverywhere) {
  for (const std::string& family : rotating_families()) {
    const std::string golden = family == "kimi_k2" ? "deepseek_v3" : family;
    ModelFiles files = config_of(golden);
    const Json rope = Json::object({{"rope_type", "axial"},
                                    {"rope_theta", 10000.0},
                                    {"factor", 2.0},
                                    {"short_mscale", 1.0},
                                    {"long_mscale", 1.0}});
    files.set("rope_parameters",
              golden == "gemma4_text" ? Json::object({{"full_attention", rope}, {"sliding_attention", rope}}) : rope);
    if (golden == "granitemoehybrid") files.set("position_embedding_type", "rope");
    EXPECT_THAT(last_logits(files, golden), FailsWith(Code::kUnsupported, "'axial'")) << family;
  }
}

TEST(RopeVariants, CoversWhatIsThere) { EXPECT_EQ(read_variants().changes.size(), 22u * 6 - 4 + 3); }

}  // namespace
}  // namespace cadre::test
