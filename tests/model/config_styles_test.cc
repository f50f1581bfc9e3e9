// config.json as transformers 4 and 5 write it, with one checkpoint: the same logits. And every way to write the layer
// pattern of nemotron_h.
#include <gtest/gtest.h>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

// A folder with this config and the golden's weights.
void link_weights(const fs::path& dir, const std::string& model) {
  fs::create_symlink(golden_dir(model) / "model.safetensors", dir / "model.safetensors");
}

std::vector<std::string> layout_configs() {
  std::vector<std::string> names;
  for (const std::string& base : folder_names(extra_dir() / "layouts")) {
    for (const auto& file : fs::directory_iterator(extra_dir() / "layouts" / base)) {
      if (file.path().filename().string().starts_with("config_v4")) {
        names.push_back(base + "/" + file.path().filename().string());
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ConfigStyles : public testing::TestWithParam<std::string> {};

TEST_P(ConfigStyles, GivesTheGoldenLogits) {
  const std::string base = GetParam().substr(0, GetParam().find('/'));
  const TempDir dir;
  fs::copy_file(extra_dir() / "layouts" / GetParam(), dir / "config.json");
  link_weights(dir.path(), base);
  auto model = open_golden({.model_dir = dir.path()});
  ASSERT_THAT(model, Succeeds());
  const auto answers = read_golden(golden_dir(base) / "golden.safetensors");
  expect_golden(*model, -1, answers, depends_on_length(base));
  // Bits equal to the golden's own config.
  auto own = open_golden({.model_dir = golden_dir(base)});
  ASSERT_THAT(own, Succeeds());
  EXPECT_EQ(model->logits(answers[2].ids, -1, {256}), own->logits(answers[2].ids, -1, {256}));
}

INSTANTIATE_TEST_SUITE_P(Files, ConfigStyles, testing::ValuesIn(layout_configs()), [](const auto& test) {
  std::string name = test.param.substr(0, test.param.rfind('.'));
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

TEST(ConfigStyles, CoversWhatIsThere) { EXPECT_EQ(layout_configs().size(), 20u); }

// ---- the layer pattern of nemotron_h ----------------------------------------------------------------------------

class NemotronPattern : public testing::Test {
 protected:
  NemotronPattern() {
    files_.config = Json::parse_file((golden_dir("nemotron_h") / "config.json").string()).value();
    link_weights(dir_.path(), "nemotron_h");
  }
  Result<GoldenModel> open() {
    files_.write_config(dir_.path());
    return open_golden({.model_dir = dir_.path()});
  }
  void expect_golden_logits() {
    auto model = open();
    ASSERT_THAT(model, Succeeds());
    const GoldenCase first = read_golden(golden_dir("nemotron_h") / "golden.safetensors")[0];
    EXPECT_LE(relative_error(model->logits(first.ids, -1, {256}), first.logits), kGoldenBound);
  }
  static Json names(const std::vector<std::string>& list) { return Json::array(list); }

  ModelFiles files_;
  TempDir dir_;
};

TEST_F(NemotronPattern, OlderNames) {
  files_.set("layers_block_type", names({"mamba", "moe", "attention", "mamba", "moe"}));
  expect_golden_logits();
}

TEST_F(NemotronPattern, LettersOnly) {
  files_.remove("layers_block_type");
  files_.set("hybrid_override_pattern", "ME*ME");
  expect_golden_logits();
}

TEST_F(NemotronPattern, BothThatAgree) {
  files_.set("hybrid_override_pattern", "ME*ME");
  files_.set("num_hidden_layers", 5);
  expect_golden_logits();
}

TEST_F(NemotronPattern, BothThatContradict) {
  files_.set("hybrid_override_pattern", "MEM*E");
  EXPECT_THAT(open(), FailsWith(Code::kInvalidFile, "contradict"));
}

TEST_F(NemotronPattern, OtherCountOfLayers) {
  files_.set("num_hidden_layers", 6);
  EXPECT_THAT(open(), FailsWith(Code::kInvalidFile, "'num_hidden_layers' is 6, but the pattern has 5 layers"));
}

TEST_F(NemotronPattern, UnknownLetterOrName) {
  files_.set("hybrid_override_pattern", "ME*MX");
  EXPECT_THAT(open(), FailsWith(Code::kUnsupported, "'X', want M (Mamba-2), * (attention), - (MLP) or E (MoE)"));
  files_.remove("hybrid_override_pattern");
  files_.set("layers_block_type", names({"mamba", "moe", "attention", "mamba", "dense"}));
  EXPECT_THAT(open(), FailsWith(Code::kUnsupported, "'dense'"));
}

TEST_F(NemotronPattern, NoneAtAll) {
  files_.remove("layers_block_type");
  EXPECT_THAT(open(), FailsWith(Code::kInvalidFile, "hybrid_override_pattern"));
}

}  // namespace
}  // namespace cadre::test
