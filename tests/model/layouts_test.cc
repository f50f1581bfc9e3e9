// One adapter in every layout in which adapters on experts are published: all give the golden's logits, and those whose
// experts share a side the logits of the same numbers repeated. tools/goldens/write_layouts.py writes them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

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

TEST_P(Layouts, AllGiveTheGoldenLogits) {
  const AdapterOptions expert_major = parse_adapter_options("b_order=expert_major").value();
  std::vector<AdapterFolder> adapters = {{"canonical", canonical()},
                                         {"stacked_expert_major", folder("stacked_expert_major"), expert_major}};
  for (const char* layout :
       {"per_expert", "stacked", "stacked_old", "stacked_3d", "named_3d", "named_3d_twice", "split_3d", "tinker"}) {
    // Stored as [experts, in, out]: no version of PEFT wrote the old orientation.
    if (GetParam().model == "gpt_oss" && std::string_view(layout) == "stacked_old") continue;
    adapters.push_back({layout, folder(layout)});
  }
  auto model = open_golden(setup(adapters));
  ASSERT_THAT(model, Succeeds());
  const auto answers = read_golden(canonical() / "golden.safetensors");
  const std::vector<float> want = model->logits(answers[2].ids, 0, {256});
  std::set<std::string> formats;
  for (std::size_t slot = 0; slot < model->adapters.size(); ++slot) {
    SCOPED_TRACE(model->adapters[slot]->name + ": " + model->adapters[slot]->report.format);
    expect_golden(*model, static_cast<std::int32_t>(slot), answers);
    // The same numbers in the same canonical form: the same bits.
    EXPECT_EQ(model->logits(answers[2].ids, static_cast<std::int32_t>(slot), {256}), want);
    EXPECT_EQ(model->adapters[slot]->report.notes, std::vector<std::string>());
    formats.insert(model->adapters[slot]->report.format);
  }
  EXPECT_EQ(formats.size(), GetParam().model == "gpt_oss" ? 6u : 7u);  // named_3d and its two neighbours are one
}

// What the experts share is held once and gives the bits of the same numbers repeated.
TEST_P(Layouts, SharedSidesGiveTheLogitsOfRepeatedOnes) {
  for (const std::string share : {"outer", "collapsed"}) {
    std::vector<AdapterFolder> adapters = {{"stacked", folder(share + "_stacked")}};
    for (const char* layout : {"stacked_3d", "named_3d", "named_3d_twice", "split_3d", "tinker"}) {
      if (fs::exists(folder(share + "_" + layout))) adapters.push_back({layout, folder(share + "_" + layout)});
    }
    ASSERT_EQ(adapters.size(), share == "outer" ? 6u : 2u);
    auto model = open_golden(setup(adapters));
    ASSERT_THAT(model, Succeeds());
    const auto answers = read_golden(canonical() / "golden.safetensors");
    const std::vector<float> want = model->logits(answers[2].ids, 0, {256});
    EXPECT_GT(relative_error(want, answers[2].logits), 1e-3);  // another adapter than the golden's
    const auto packed = [&](std::size_t slot) {
      std::int64_t bytes = 0;
      for (const AdapterBinding& binding : model->adapters[slot]->report.bindings) bytes += binding.packed_bytes;
      return bytes;
    };
    EXPECT_EQ(model->adapters[0]->report.format.find("shared outer"), std::string::npos);
    for (std::size_t slot = 1; slot < adapters.size(); ++slot) {
      SCOPED_TRACE(share + " " + adapters[slot].name + ": " + model->adapters[slot]->report.format);
      EXPECT_NE(model->adapters[slot]->report.format.find("shared outer"), std::string::npos);
      EXPECT_EQ(model->logits(answers[2].ids, static_cast<std::int32_t>(slot), {256}), want);
      for (const auto& [layer, lora] : model->adapters[slot]->experts) {
        EXPECT_TRUE(lora.shared_outer());
        EXPECT_EQ(lora.up[0].a.data, lora.up[1].a.data);
        EXPECT_EQ(lora.down[0].b.data, lora.down[1].b.data);
      }
      EXPECT_LT(packed(slot), packed(0));
      std::map<int, AdapterDemand> needs;
      Model::add_needs(*model->adapters[slot], &needs);
      EXPECT_FALSE(needs.empty());
      for (const auto& [layer, demand] : needs) EXPECT_EQ(demand.layouts, kSharedOuter);
    }
    for (const auto& [layer, lora] : model->adapters[0]->experts) EXPECT_FALSE(lora.shared_outer());
  }
}

// Nothing in the file tells the two orders apart: the option is what does.
TEST_P(Layouts, ExpertMajorNeedsItsOption) {
  auto model = open_golden(setup({{"one", folder("stacked_expert_major")}}));
  ASSERT_THAT(model, Succeeds());
  const GoldenCase first = read_golden(canonical() / "golden.safetensors")[0];
  EXPECT_GT(relative_error(model->logits(first.ids, 0, {256}), first.logits), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Models, Layouts,
                         testing::Values(Case{"qwen3_moe", "qwen"}, Case{"mixtral", "mixtral"},
                                         Case{"nemotron_h", "nemotron"}, Case{"olmoe", "qwen"},
                                         Case{"gpt_oss", "gpt_oss"}),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.model; });

}  // namespace
}  // namespace cadre::test
