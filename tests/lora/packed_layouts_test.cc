// Experts with a dimension of their own: values, what is shared, and what is refused.
#include "lora/adapter_files.h"
#include "lora/golden_targets.h"

namespace cadre {
namespace {

const std::string kExperts = "base_model.model.model.layers.0.mlp.experts.";

Matrix numbered_3d(std::int64_t experts, std::int64_t rows, std::int64_t columns, int seed) {
  Matrix m = numbered(experts * rows, columns, seed);
  m.shape = {experts, rows, columns};
  return m;
}

Matrix part(const Matrix& m, std::int64_t e, std::int64_t begin, std::int64_t step, std::int64_t count) {
  Matrix out{{count, m.shape[2]}, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = 0; k < m.shape[2]; ++k) {
      out.values.push_back(m.values[static_cast<std::size_t>((e * m.shape[1] + begin + i * step) * m.shape[2] + k)]);
    }
  }
  return out;
}

void put(Tensors* tensors, const std::string& name, const Matrix& a, const Matrix& b, const char* end = ".weight") {
  (*tensors)[kExperts + name + ".lora_A" + end] = a;
  (*tensors)[kExperts + name + ".lora_B" + end] = b;
}

// small_targets(): 3 experts, width 8, intermediate 6; rank 2.
class Packed : public testing::TestWithParam<std::tuple<int, int, bool, bool>> {};

TEST_P(Packed, GateUpComesBackExactly) {
  const auto [of_a, of_b, two_a, interleaved] = GetParam();
  AdapterTargets targets = small_targets();
  targets.experts[0].interleaved = interleaved;
  const Matrix a = numbered_3d(of_a, two_a ? 4 : 2, 8, 1), b = numbered_3d(of_b, 12, 2, 2);
  Tensors tensors;
  put(&tensors, "gate_up_proj", a, b, interleaved ? "" : ".weight");
  const auto adapter = read_tensors(targets, config_text(), tensors);
  ASSERT_THAT(adapter, Succeeds());
  const LayerLora& lora = (*adapter)->experts.at(0);
  const bool shared = of_a == 1 || of_b == 1;
  EXPECT_EQ((*adapter)->report.format, shared ? "packed experts (shared outer)" : "packed experts");
  EXPECT_EQ(lora.shared_outer(), shared);
  EXPECT_TRUE(lora.down.empty());
  ASSERT_EQ(lora.gate.size(), 3u);
  ASSERT_EQ(lora.up.size(), 3u);
  for (std::size_t e = 0; e < 3; ++e) {
    const std::int64_t ae = of_a == 1 ? 0 : std::int64_t(e), be = of_b == 1 ? 0 : std::int64_t(e);
    EXPECT_EQ(values_of(lora.gate[e].a), part(a, ae, 0, 1, 2));
    EXPECT_EQ(values_of(lora.up[e].a), part(a, ae, two_a ? 2 : 0, 1, 2));
    EXPECT_EQ(values_of(lora.gate[e].b), part(b, be, 0, interleaved ? 2 : 1, 6));
    EXPECT_EQ(values_of(lora.up[e].b), part(b, be, interleaved ? 1 : 6, interleaved ? 2 : 1, 6));
    EXPECT_EQ(lora.gate[e].scale, 2.0f);
    EXPECT_EQ(lora.gate[e].a.data == lora.up[e].a.data, !two_a);
    EXPECT_EQ(lora.up[e].a.data == lora.up[0].a.data, of_a == 1 || e == 0);
    EXPECT_EQ(lora.up[e].b.data == lora.up[0].b.data, of_b == 1 || e == 0);
  }
  // Each number of the file once, whatever the number of experts.
  std::int64_t packed = 0;
  for (const AdapterBinding& binding : (*adapter)->report.bindings) packed += binding.packed_bytes;
  EXPECT_EQ(packed, std::int64_t(a.values.size() + b.values.size()) * 4);
}

INSTANTIATE_TEST_SUITE_P(All, Packed,
                         testing::Combine(testing::Values(1, 3), testing::Values(1, 3), testing::Bool(),
                                          testing::Bool()));

TEST(PackedExperts, NamesOfEachProjection) {
  for (const bool tinker : {false, true}) {
    for (const bool gated : {false, true}) {
      const Matrix up_a = numbered_3d(1, 2, 8, 1), up_b = numbered_3d(3, 6, 2, 2), down_a = numbered_3d(3, 2, 6, 3),
                   down_b = numbered_3d(1, 8, 2, 4), gate_b = numbered_3d(3, 6, 2, 5);
      Tensors tensors;
      if (gated) put(&tensors, tinker ? "w1" : "gate_proj", up_a, gate_b);
      put(&tensors, tinker ? (gated ? "w3" : "w1") : "up_proj", up_a, up_b);
      put(&tensors, tinker ? "w2" : "down_proj", down_a, down_b);
      if (tinker && !gated) put(&tensors, "w3", Matrix{{0}, {}}, Matrix{{3, 0, 2}, {}});
      const auto adapter = read_tensors(small_targets(3, 8, 6, gated), config_text(), tensors);
      ASSERT_THAT(adapter, Succeeds());
      EXPECT_EQ((*adapter)->report.format, tinker ? "tinker experts (shared outer)" : "packed experts (shared outer)");
      const LayerLora& lora = (*adapter)->experts.at(0);
      EXPECT_EQ(lora.gate.size(), gated ? 3u : 0u);
      for (std::size_t e = 0; e < 3; ++e) {
        const auto at = static_cast<std::int64_t>(e);
        if (gated) {
          EXPECT_EQ(values_of(lora.gate[e].b), part(gate_b, at, 0, 1, 6));
        }
        EXPECT_EQ(values_of(lora.up[e].a), part(up_a, 0, 0, 1, 2));
        EXPECT_EQ(values_of(lora.up[e].b), part(up_b, at, 0, 1, 6));
        EXPECT_EQ(values_of(lora.down[e].a), part(down_a, at, 0, 1, 2));
        EXPECT_EQ(values_of(lora.down[e].b), part(down_b, 0, 0, 1, 8));
      }
    }
  }
}

TEST(PackedExperts, EmptyTensorsMeanSomethingInOnePlaceOnly) {
  const Matrix nothing{{0}, {}};
  const AdapterTargets plain = small_targets(3, 8, 6, false), gated = small_targets();
  Tensors w1, w3, q;
  put(&w1, "w1", nothing, nothing);
  EXPECT_THAT(read_tensors(plain, config_text(), w1),
              FailsWith(Code::kInvalidFile, "without elements, and 'model.layers.0.mlp.experts' has this projection"));
  put(&w3, "w3", nothing, nothing);
  EXPECT_THAT(read_tensors(gated, config_text(), w3), FailsWith(Code::kInvalidFile, "the file is not complete"));
  Tensors up;
  put(&up, "up_proj", nothing, nothing);
  EXPECT_THAT(read_tensors(plain, config_text(), up), FailsWith(Code::kInvalidFile, "is F32 [0], want a matrix"));
  Tensors stray;
  put(&stray, "w4", nothing, nothing);
  EXPECT_THAT(read_tensors(plain, config_text(), stray), FailsWith(Code::kInvalidFile, "is F32 [0], want a matrix"));
  // Half of the placeholder filled.
  Tensors half;
  put(&half, "w3", nothing, numbered_3d(3, 6, 2, 1));
  EXPECT_THAT(read_tensors(plain, config_text(), half), FailsWith(Code::kInvalidFile, "has no lora_A beside it"));
  Tensors full;
  put(&full, "w3", numbered_3d(3, 2, 8, 1), numbered_3d(3, 6, 2, 1));
  EXPECT_THAT(read_tensors(plain, config_text(), full), FailsWith(Code::kInvalidFile, "has no gate"));
  // Nothing but placeholders binds nothing.
  EXPECT_THAT(read_tensors(plain, config_text(), w3),
              FailsWith(Code::kInvalidFile, "placeholders without elements only"));
}

TEST(PackedExperts, ShapesAndNamesAreChecked) {
  const AdapterTargets targets = small_targets();
  struct Wrong {
    Matrix a, b;
    const char* phrase;
  };
  const Matrix a = numbered_3d(3, 2, 8, 1), b = numbered_3d(3, 12, 2, 2);
  const Wrong wrong[] = {
      {numbered_3d(2, 2, 8, 1), b, "is F32 [2, 2, 8], want [3, 2, 8], or [1, 2, 8] where the experts share it"},
      {a, numbered_3d(4, 12, 2, 1), "is F32 [4, 12, 2], want [3, 12, 2], or [1, 12, 2] where the experts share it"},
      {numbered_3d(3, 2, 7, 1), b, "is F32 [3, 2, 7], want [3, 2, 8]"},
      {a, numbered_3d(3, 2, 12, 1), "is F32 [3, 2, 12], want [3, 12, 2]"},
      {numbered(6, 8, 1), b, "is F32 [6, 8], want [3, 2, 8]"},
      {a, numbered(12, 6, 1), "is F32 [12, 6], want [3, 12, 2]"},
      {numbered_3d(3, 3, 8, 1), b, "is F32 [3, 3, 8], which is rank 3, but "},
      {a, numbered_3d(3, 12, 4, 1), "is F32 [3, 12, 4], which is rank 4, but "},
      {numbered_3d(3, 4, 8, 1), numbered_3d(3, 12, 4, 1), "which is rank 4, but "},
  };
  for (const Wrong& w : wrong) {
    Tensors tensors;
    put(&tensors, "gate_up_proj", w.a, w.b);
    EXPECT_THAT(read_tensors(targets, config_text(), tensors), FailsWith(Code::kInvalidFile, w.phrase));
  }
  Tensors good;
  put(&good, "gate_up_proj", a, b);
  EXPECT_THAT(read_tensors(targets, config_text("\"rank_pattern\": {\"experts.gate_up_proj\": 4}"), good),
              FailsWith(Code::kInvalidFile, "gives it rank 4"));
  EXPECT_THAT(read_tensors(small_targets(3, 8, 6, false), config_text(), good),
              FailsWith(Code::kInvalidFile, "is of 'gate_up_proj', and 'model.layers.0.mlp.experts' has no gate"));
  // Only gate and up together may have two A.
  Tensors down;
  put(&down, "down_proj", numbered_3d(3, 4, 6, 1), numbered_3d(3, 8, 2, 2));
  EXPECT_THAT(read_tensors(targets, config_text(), down), FailsWith(Code::kInvalidFile, "which is rank 4, but "));
  Tensors twice = good;
  put(&twice, "w1", a, numbered_3d(3, 6, 2, 1));
  EXPECT_THAT(read_tensors(targets, config_text(), twice),
              FailsWith(Code::kInvalidFile, "another tensor of the file already binds to the same place"));
  Tensors both = good;
  both[kExperts + "gate_up_proj.lora_A"] = a;
  EXPECT_THAT(read_tensors(targets, config_text(), both), FailsWith(Code::kInvalidFile, "bind to the same place"));
  Tensors stray = good;
  put(&stray, "side_proj", a, b);
  EXPECT_THAT(read_tensors(targets, config_text(), stray), FailsWith(Code::kInvalidFile, "2 of 4 tensors bind to no"));
  Tensors cut = good;
  cut.erase(kExperts + "gate_up_proj.lora_B.weight");
  EXPECT_THAT(read_tensors(targets, config_text(), cut), FailsWith(Code::kInvalidFile, "has no lora_B beside it"));
}

// As PEFT names the wrappers, with the experts' dimension kept: A [E, r, in], B [out, r, E].
class Stacked3d : public testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(Stacked3d, ComesBackExactly) {
  const auto [of_a, of_b, expert_major] = GetParam();
  const Matrix a = numbered_3d(of_a, 2, 6, 1);
  const Matrix b = expert_major ? numbered_3d(8, of_b, 2, 2) : numbered_3d(8, 2, of_b, 2);
  Tensors tensors{{kExperts + "lora_A.weight", a}, {kExperts + "lora_B.weight", b}};
  AdapterOptions options;
  if (expert_major) options.b_order = BOrder::kExpertMajor;
  const auto adapter = read_tensors(small_targets(), config_text(), tensors, options);
  ASSERT_THAT(adapter, Succeeds());
  const LayerLora& lora = (*adapter)->experts.at(0);
  const bool shared = of_a == 1 || of_b == 1;
  EXPECT_EQ((*adapter)->report.format, std::string("peft stacked (peft orientation") +
                                           (expert_major ? ", expert-major B" : "") + ", 3-D" +
                                           (shared ? ", shared outer)" : ")"));
  EXPECT_EQ(lora.shared_outer(), shared);
  EXPECT_TRUE(lora.gate.empty() && lora.up.empty());
  ASSERT_EQ(lora.down.size(), 3u);
  for (std::size_t e = 0; e < 3; ++e) {
    EXPECT_EQ(values_of(lora.down[e].a), part(a, of_a == 1 ? 0 : std::int64_t(e), 0, 1, 2));
    const std::int64_t be = of_b == 1 ? 0 : std::int64_t(e);
    Matrix want{{8, 2}, std::vector<float>(16)};
    for (std::int64_t o = 0; o < 8; ++o) {
      for (std::int64_t k = 0; k < 2; ++k) {
        const std::int64_t at = expert_major ? (o * of_b + be) * 2 + k : (o * 2 + k) * of_b + be;
        want(o, k) = b.values[static_cast<std::size_t>(at)];
      }
    }
    EXPECT_EQ(values_of(lora.down[e].b), want);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Stacked3d,
                         testing::Combine(testing::Values(1, 3), testing::Values(1, 3), testing::Bool()));

TEST(Stacked3dLayout, WhatShapesDoNotDecideIsRefused) {
  const auto read = [](const AdapterTargets& targets, const Matrix& a, const Matrix& b,
                       const AdapterOptions& options = {}, const std::string& more = "") {
    return read_tensors(targets, config_text(more), {{kExperts + "lora_A.weight", a}, {kExperts + "lora_B.weight", b}},
                        options);
  };
  const AdapterTargets targets = small_targets();
  // The other order of the last two dimensions.
  EXPECT_THAT(read(targets, numbered_3d(3, 2, 6, 1), numbered_3d(8, 3, 2, 2)),
              FailsWith(Code::kInvalidFile, "the option b_order=expert_major is for the other order"));
  EXPECT_THAT(read(targets, numbered_3d(2, 2, 6, 1), numbered_3d(8, 2, 3, 2)),
              FailsWith(Code::kInvalidFile,
                        "is F32 [2, 2, 6], which is of 2 experts, and 'model.layers.0.mlp.experts' "
                        "has 3"));
  EXPECT_THAT(read(targets, numbered_3d(3, 4, 6, 1), numbered_3d(8, 4, 3, 2)),
              FailsWith(Code::kInvalidFile, "which is rank 4, but "));
  EXPECT_THAT(read(targets, numbered_3d(3, 2, 6, 1), numbered_3d(3, 8, 2, 2)),
              FailsWith(Code::kInvalidFile, "want lora_A [3, r, 8] and lora_B [12, r, 3], or two dimensions"));
  EXPECT_THAT(read(targets, numbered_3d(3, 2, 6, 1), numbered(8, 6, 2)),
              FailsWith(Code::kInvalidFile, "with a dimension of its own for the experts want"));
  // A square parameter (2 * 4 = 8) alone.
  const AdapterTargets square = small_targets(3, 8, 4);
  const std::string only_up = "\"target_parameters\": [\"mlp.experts.gate_up_proj\"]";
  const Matrix a = numbered_3d(3, 2, 8, 1), b = numbered_3d(8, 2, 3, 2);
  EXPECT_THAT(read(square, a, b, {}, only_up), FailsWith(Code::kInvalidFile, "add orientation=peft if"));
  AdapterOptions options;
  options.orientation = Orientation::kPeft;
  const auto adapter = read(square, a, b, options, only_up);
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_EQ(values_of((*adapter)->experts.at(0).gate[2].a), part(a, 2, 0, 1, 2));
}

// The options of stacked experts change nothing here, and it is said.
TEST(PackedExperts, OptionsOfStackedExpertsAreNoted) {
  Tensors tensors;
  put(&tensors, "w2", numbered_3d(3, 2, 6, 1), numbered_3d(3, 8, 2, 2));
  AdapterOptions options;
  options.b_order = BOrder::kExpertMajor;
  const auto adapter = read_tensors(small_targets(), config_text(), tensors, options);
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_THAT((*adapter)->report.notes, testing::ElementsAre("option b_order changes nothing: the file holds no "
                                                             "stacked experts"));
}

}  // namespace
}  // namespace cadre
