// One adapter in every layout in which adapters on experts are published: all that are read give the golden's logits,
// the others are refused. tools/goldens/write_layouts.py writes them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/golden.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

bool has_python() {
  return std::system("python3 -c 'import argparse, array, json, struct' > /dev/null 2>&1") == 0;  // NOLINT: a constant
}

struct Case {
  std::string model, style;
};

class Layouts : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_python()) GTEST_SKIP() << "python3 is not there to write the layouts";
    const auto [it, is_new] = written_.try_emplace(GetParam().model);
    out_ = it->second.path();
    if (!is_new) return;
    const std::string command = "python3 '" CADRE_SOURCE "/tools/goldens/write_layouts.py' '" + canonical().string() +
                                "' '" + out_.string() + "' --style " + GetParam().style;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT: of paths that this test made
  }
  fs::path canonical() const { return golden_dir(GetParam().model) / "adapters/experts"; }
  GoldenSetup setup(const std::vector<AdapterFolder>& adapters) const {
    return {.model_dir = golden_dir(GetParam().model), .adapters = adapters};
  }
  std::string folder(const std::string& layout) const { return out_ / layout; }

  fs::path out_;
  static inline std::map<std::string, TempDir> written_;  // by model: the tests share what was written
};

TEST_P(Layouts, SupportedOnesGiveTheGoldenLogits) {
  const AdapterOptions expert_major = parse_adapter_options("b_order=expert_major").value();
  auto model = open_golden(setup({{"canonical", canonical()},
                                  {"per_expert", folder("per_expert")},
                                  {"stacked", folder("stacked")},
                                  {"stacked_old", folder("stacked_old")},
                                  {"stacked_expert_major", folder("stacked_expert_major"), expert_major}}));
  ASSERT_THAT(model, Succeeds());
  const auto answers = read_golden(canonical() / "golden.safetensors");
  const std::vector<float> want = model->logits(answers[2].ids, 0, {256});
  for (std::size_t slot = 0; slot < model->adapters.size(); ++slot) {
    SCOPED_TRACE(model->adapters[slot]->name + ": " + model->adapters[slot]->report.format);
    expect_golden(*model, static_cast<std::int32_t>(slot), answers);
    // The same numbers in the same canonical form: the same bits.
    EXPECT_EQ(model->logits(answers[2].ids, static_cast<std::int32_t>(slot), {256}), want);
  }
  EXPECT_NE(model->adapters[1]->report.format, model->adapters[2]->report.format);
  EXPECT_NE(model->adapters[2]->report.format, model->adapters[3]->report.format);
}

// Nothing in the file tells the two orders apart: the option is what does.
TEST_P(Layouts, ExpertMajorNeedsItsOption) {
  auto model = open_golden(setup({{"one", folder("stacked_expert_major")}}));
  ASSERT_THAT(model, Succeeds());
  const GoldenCase first = read_golden(canonical() / "golden.safetensors")[0];
  EXPECT_GT(relative_error(model->logits(first.ids, 0, {256}), first.logits), 1e-2);
}

TEST_P(Layouts, OthersAreRefused) {
  EXPECT_THAT(open_golden(setup({{"one", folder("stacked_3d")}})),
              FailsWith(Code::kUnsupported, "with a dimension of its own for the experts"));
  EXPECT_THAT(open_golden(setup({{"one", folder("named_3d")}})), FailsWith(Code::kInvalidFile, "bind to nothing"));
  for (const char* layout : {"stacked_3d", "named_3d"}) {
    const auto model = open_golden(setup({{"one", folder(layout)}}));
    ASSERT_FALSE(model.ok()) << layout;
    for (const char* phrase : {"lora_A", "adapter_model.safetensors"}) {
      EXPECT_NE(model.status().message().find(phrase), std::string::npos) << model.status().message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Layouts,
                         testing::Values(Case{"qwen3_moe", "qwen"}, Case{"mixtral", "mixtral"},
                                         Case{"nemotron_h", "nemotron"}, Case{"olmoe", "qwen"}),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.model; });

}  // namespace
}  // namespace cadre::test
