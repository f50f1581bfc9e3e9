// One canonical adapter of the experts, written in every stacked layout, comes back value for value.
#include <algorithm>

#include "lora/adapter_files.h"
#include "lora/golden_targets.h"

namespace cadre {
namespace {

using testing::HasSubstr;

constexpr const char* kExperts = "base_model.model.model.layers.0.mlp.experts.";

// For each expert A [r, in] and B [out, r].
struct Stack {
  std::vector<Matrix> a, b;
};

Stack make_stack(int experts, std::int64_t rank, std::int64_t in, std::int64_t out, int seed) {
  Stack s;
  for (int e = 0; e < experts; ++e) {
    s.a.push_back(numbered(rank, in, seed + 2 * e));
    s.b.push_back(numbered(out, rank, seed + 2 * e + 1));
  }
  return s;
}

Matrix transposed(const Matrix& m) {
  Matrix t{{m.shape[1], m.shape[0]}, std::vector<float>(m.values.size())};
  for (std::int64_t i = 0; i < m.shape[0]; ++i) {
    for (std::int64_t k = 0; k < m.shape[1]; ++k) t(k, i) = m(i, k);
  }
  return t;
}

// The two tensors of one wrapper: as PEFT 0.19 and later (or, `swapped`, 0.18 and older) write them.
void put(Tensors* tensors, const std::string& prefix, const Stack& stack, bool swapped, bool expert_major = false) {
  std::vector<Matrix> a = stack.a, b = stack.b;
  if (swapped) {
    for (std::size_t e = 0; e < a.size(); ++e) {
      a[e] = transposed(stack.b[e]);
      b[e] = transposed(stack.a[e]);
    }
  }
  const auto experts = static_cast<std::int64_t>(a.size());
  const std::int64_t rank = a[0].shape[0], columns = a[0].shape[1], rows = b[0].shape[0], flat = experts * rank;
  Matrix all_a{{flat, columns}, std::vector<float>(static_cast<std::size_t>(flat * columns))};
  Matrix all_b{{rows, flat}, std::vector<float>(static_cast<std::size_t>(flat * rows))};
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t k = 0; k < rank; ++k) {
      for (std::int64_t i = 0; i < columns; ++i) all_a(e * rank + k, i) = a[static_cast<std::size_t>(e)](k, i);
      for (std::int64_t o = 0; o < rows; ++o) {
        all_b(o, expert_major ? e * rank + k : k * experts + e) = b[static_cast<std::size_t>(e)](o, k);
      }
    }
  }
  (*tensors)[prefix + "lora_A.weight"] = all_a;
  (*tensors)[prefix + "lora_B.weight"] = all_b;
}

Matrix some_rows(const Matrix& m, std::int64_t begin, std::int64_t step, std::int64_t count) {
  Matrix out{{count, m.shape[1]}, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t k = 0; k < m.shape[1]; ++k) out.values.push_back(m(begin + i * step, k));
  }
  return out;
}

void expect_terms(const std::vector<LowRank>& got, const Stack& want) {
  ASSERT_EQ(got.size(), want.a.size());
  for (std::size_t e = 0; e < got.size(); ++e) {
    EXPECT_EQ(values_of(got[e].a), want.a[e]) << "A of expert " << e;
    EXPECT_EQ(values_of(got[e].b), want.b[e]) << "B of expert " << e;
    EXPECT_EQ(got[e].scale, 2.0f);  // alpha 4 over rank 2
  }
}

class StackedLayouts : public testing::TestWithParam<std::tuple<bool, bool, bool, bool>> {};

TEST_P(StackedLayouts, ComeBackExactly) {
  const auto [gated, swapped, expert_major, interleaved] = GetParam();
  if (interleaved && !gated) return;
  AdapterTargets targets = small_targets(3, 8, 6, gated);
  targets.experts[0].interleaved = interleaved;
  const Stack up = make_stack(3, 2, 8, gated ? 12 : 6, 1), down = make_stack(3, 2, 6, 8, 100);
  Tensors tensors;
  put(&tensors, kExperts + std::string("base_layer."), up, swapped, expert_major);
  put(&tensors, kExperts, down, swapped, expert_major);
  AdapterOptions options;
  if (expert_major) options.b_order = BOrder::kExpertMajor;
  const auto adapter = read_tensors(targets, config_text(), tensors, options);
  ASSERT_THAT(adapter, Succeeds());
  const LayerLora& lora = (*adapter)->experts.at(0);
  expect_terms(lora.down, down);
  if (!gated) {
    EXPECT_TRUE(lora.gate.empty());
    expect_terms(lora.up, up);
    return;
  }
  Stack gate_rows = up, up_rows = up;
  for (std::size_t e = 0; e < 3; ++e) {
    gate_rows.b[e] = some_rows(up.b[e], 0, interleaved ? 2 : 1, 6);
    up_rows.b[e] = some_rows(up.b[e], interleaved ? 1 : 6, interleaved ? 2 : 1, 6);
    EXPECT_EQ(lora.gate[e].a.data, lora.up[e].a.data);
  }
  expect_terms(lora.gate, gate_rows);
  expect_terms(lora.up, up_rows);
}

INSTANTIATE_TEST_SUITE_P(All, StackedLayouts,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool(), testing::Bool()));

// The same adapter as single experts' tensors: gate and up each with their own copy of A.
TEST(StackedLayout, EqualsPerExpert) {
  const AdapterTargets targets = small_targets();
  const Stack up = make_stack(3, 2, 8, 12, 1), down = make_stack(3, 2, 6, 8, 100);
  Tensors stacked, single;
  put(&stacked, kExperts + std::string("base_layer."), up, false);
  put(&stacked, kExperts, down, false);
  for (int e = 0; e < 3; ++e) {
    const auto at = static_cast<std::size_t>(e);
    const std::string prefix = kExperts + std::to_string(e) + ".";
    single[prefix + "gate_proj.lora_A.weight"] = single[prefix + "up_proj.lora_A.weight"] = up.a[at];
    single[prefix + "gate_proj.lora_B.weight"] = some_rows(up.b[at], 0, 1, 6);
    single[prefix + "up_proj.lora_B.weight"] = some_rows(up.b[at], 6, 1, 6);
    single[prefix + "down_proj.lora_A.weight"] = down.a[at];
    single[prefix + "down_proj.lora_B.weight"] = down.b[at];
  }
  const auto a = read_tensors(targets, config_text(), stacked), b = read_tensors(targets, config_text(), single);
  ASSERT_THAT(a, Succeeds());
  ASSERT_THAT(b, Succeeds());
  const LayerLora &x = (*a)->experts.at(0), &y = (*b)->experts.at(0);
  for (std::size_t e = 0; e < 3; ++e) {
    for (const auto& [p, q] :
         {std::pair(x.gate[e], y.gate[e]), std::pair(x.up[e], y.up[e]), std::pair(x.down[e], y.down[e])}) {
      EXPECT_EQ(values_of(p.a), values_of(q.a));
      EXPECT_EQ(values_of(p.b), values_of(q.b));
      EXPECT_EQ(p.scale, q.scale);
    }
  }
  EXPECT_NE((*a)->digest, (*b)->digest);
}

// hidden 8 = 2 * intermediate 4: gate and up are square, and only down shows the orientation.
TEST(StackedLayout, SquareGoesByItsSibling) {
  const AdapterTargets targets = small_targets(3, 8, 4);
  const Stack up = make_stack(3, 2, 8, 8, 1), down = make_stack(3, 2, 4, 8, 100);
  for (const bool swapped : {false, true}) {
    Tensors tensors;
    put(&tensors, kExperts + std::string("base_layer."), up, swapped);
    put(&tensors, kExperts, down, swapped);
    const auto adapter = read_tensors(targets, config_text(), tensors);
    ASSERT_THAT(adapter, Succeeds());
    EXPECT_EQ((*adapter)->report.format,
              swapped ? "peft stacked (swapped orientation)" : "peft stacked (peft orientation)");
    EXPECT_EQ(values_of((*adapter)->experts.at(0).gate[1].a), up.a[1]);
    AdapterOptions wrong;
    wrong.orientation = swapped ? Orientation::kPeft : Orientation::kSwapped;
    EXPECT_THAT(read_tensors(targets, config_text(), tensors, wrong),
                FailsWith(Code::kInvalidArgument,
                          swapped ? "orientation=peft contradicts tensor" : "orientation=swapped contradicts tensor"));
  }
}

TEST(StackedLayout, SquareAloneNeedsTheOption) {
  const AdapterTargets targets = small_targets(3, 8, 4);
  const Stack up = make_stack(3, 2, 8, 8, 1);
  const std::string config = config_text("\"target_parameters\": [\"mlp.experts.gate_up_proj\"]");
  for (const bool swapped : {false, true}) {
    Tensors tensors;
    put(&tensors, kExperts, up, swapped);
    EXPECT_THAT(read_tensors(targets, config, tensors), FailsWith(Code::kInvalidFile, "orientation=swapped if"));
    AdapterOptions options;
    options.orientation = swapped ? Orientation::kSwapped : Orientation::kPeft;
    const auto adapter = read_tensors(targets, config, tensors, options);
    ASSERT_THAT(adapter, Succeeds());
    EXPECT_EQ(values_of((*adapter)->experts.at(0).gate[2].a), up.a[2]);
    EXPECT_TRUE((*adapter)->experts.at(0).down.empty());
  }
}

TEST(StackedLayout, OrientationsDoNotMix) {
  const AdapterTargets targets = small_targets();
  Tensors tensors;
  put(&tensors, kExperts + std::string("base_layer."), make_stack(3, 2, 8, 12, 1), false);
  put(&tensors, kExperts, make_stack(3, 2, 6, 8, 100), true);
  EXPECT_THAT(read_tensors(targets, config_text(), tensors),
              FailsWith(Code::kInvalidFile, "in that of PEFT 0.18 and older; one file has one orientation"));
}

// Without a gate, up swapped looks like down.
TEST(StackedLayout, OneParameterAloneIsNamedByTheConfig) {
  const AdapterTargets targets = small_targets(3, 8, 6, false);
  const Stack up = make_stack(3, 2, 8, 6, 1);
  Tensors tensors;
  put(&tensors, kExperts, up, false);
  EXPECT_THAT(read_tensors(targets, config_text(), tensors),
              FailsWith(Code::kInvalidFile, "may belong to 'up_proj' or to 'down_proj'; list the right one alone in "));
  const auto as_up = read_tensors(targets, config_text("\"target_parameters\": [\"experts.up_proj\"]"), tensors);
  ASSERT_THAT(as_up, Succeeds());
  expect_terms((*as_up)->experts.at(0).up, up);
  const auto as_down = read_tensors(targets, config_text("\"target_parameters\": [\"experts.down_proj\"]"), tensors);
  ASSERT_THAT(as_down, Succeeds());
  EXPECT_EQ((*as_down)->report.format, "peft stacked (swapped orientation)");
  EXPECT_TRUE((*as_down)->experts.at(0).up.empty());
  EXPECT_EQ((*as_down)->experts.at(0).down[0].a.dim(1), 6);
  AdapterOptions options;
  options.orientation = Orientation::kPeft;
  const auto by_option = read_tensors(targets, config_text(), tensors, options);
  ASSERT_THAT(by_option, Succeeds());
  expect_terms((*by_option)->experts.at(0).up, up);
}

// With a gate, the shapes of the two never meet.
TEST(StackedLayout, OneParameterAloneIsSeenInTheShapes) {
  const AdapterTargets targets = small_targets();
  for (const bool swapped : {false, true}) {
    Tensors tensors;
    put(&tensors, kExperts, make_stack(3, 2, 8, 12, 1), swapped);
    const auto up = read_tensors(targets, config_text(), tensors);
    ASSERT_THAT(up, Succeeds());
    EXPECT_TRUE((*up)->experts.at(0).down.empty());
    EXPECT_EQ((*up)->experts.at(0).gate.size(), 3u);
    tensors.clear();
    put(&tensors, kExperts, make_stack(3, 2, 6, 8, 1), swapped);
    const auto down = read_tensors(targets, config_text(), tensors);
    ASSERT_THAT(down, Succeeds());
    EXPECT_TRUE((*down)->experts.at(0).gate.empty());
    EXPECT_EQ((*down)->experts.at(0).down.size(), 3u);
  }
}

// Stored as [experts, in, out]: never swapped, square or not.
TEST(StackedLayout, TransposedBaseIsNeverSwapped) {
  AdapterTargets targets = small_targets(3, 8, 8);
  targets.experts[0].transposed = true;
  const Stack up = make_stack(3, 2, 8, 16, 1), down = make_stack(3, 2, 8, 8, 100);
  Tensors tensors;
  put(&tensors, kExperts + std::string("base_layer."), up, false);
  put(&tensors, kExperts, down, false);
  const auto adapter = read_tensors(targets, config_text(), tensors);
  ASSERT_THAT(adapter, Succeeds());
  expect_terms((*adapter)->experts.at(0).down, down);
  AdapterOptions options;
  options.orientation = Orientation::kSwapped;
  EXPECT_THAT(read_tensors(targets, config_text(), tensors, options),
              FailsWith(Code::kInvalidArgument, "stored as [experts, in, out], which PEFT never swaps"));
  put(&tensors, kExperts + std::string("base_layer."), up, true);
  EXPECT_THAT(read_tensors(targets, config_text(), tensors),
              FailsWith(Code::kInvalidFile, "want lora_A with 8 columns and lora_B with 16 rows: adapter of another"));
}

TEST(StackedLayout, RanksShapesAndMissingPartsAreChecked) {
  const AdapterTargets targets = small_targets();
  const Stack up = make_stack(3, 2, 8, 12, 1), down = make_stack(3, 2, 6, 8, 100);
  Tensors both;
  put(&both, kExperts + std::string("base_layer."), up, false);
  put(&both, kExperts, down, false);
  EXPECT_THAT(read_tensors(targets, config_text("\"rank_pattern\": {\"experts.down_proj\": 4}"), both),
              FailsWith(Code::kInvalidFile, "experts.lora_A.weight' of "));
  EXPECT_THAT(read_tensors(targets, config_text("\"rank_pattern\": {\"experts.down_proj\": 4}"), both),
              FailsWith(Code::kInvalidFile, "is F32 [6, 6], which is rank 2, but "));
  EXPECT_THAT(read_tensors(small_targets(4), config_text(), both),
              FailsWith(Code::kInvalidFile, "6 is not a multiple of the 4 experts of 'model.layers.0.mlp.experts'"));
  EXPECT_THAT(read_tensors(small_targets(3, 8, 5), config_text(), both),
              FailsWith(Code::kInvalidFile,
                        "for 'model.layers.0.mlp.experts.gate_up_proj' want lora_A with 8 columns and lora_B with 10 "
                        "rows, or 10 columns and 8 rows (PEFT 0.18 and older)"));
  Tensors inner;
  put(&inner, kExperts + std::string("base_layer."), up, false);
  EXPECT_THAT(read_tensors(targets, config_text(), inner),
              FailsWith(Code::kInvalidFile, "is of an inner wrapper, and the outer one's"));
  Tensors cut = both;
  cut.erase(kExperts + std::string("lora_B.weight"));
  EXPECT_THAT(read_tensors(targets, config_text(), cut), FailsWith(Code::kInvalidFile, "has no lora_B beside it"));
  Tensors flat = both;
  flat[kExperts + std::string("lora_A.weight")].shape = {36};
  EXPECT_THAT(read_tensors(targets, config_text(), flat), FailsWith(Code::kInvalidFile, "is F32 [36]"));
}

// A projection cannot come from both layouts at once.
TEST(StackedLayout, AndPerExpertOfTheSameProjectionConflict) {
  const AdapterTargets targets = small_targets();
  Tensors tensors;
  put(&tensors, kExperts, make_stack(3, 2, 6, 8, 100), false);
  tensors[kExperts + std::string("1.up_proj.lora_A.weight")] = numbered(2, 8, 1);
  tensors[kExperts + std::string("1.up_proj.lora_B.weight")] = numbered(6, 2, 2);
  const auto adapter = read_tensors(targets, config_text(), tensors);
  ASSERT_THAT(adapter, Succeeds());
  EXPECT_EQ((*adapter)->report.format, "per expert + peft stacked (peft orientation)");
  tensors[kExperts + std::string("1.down_proj.lora_A.weight")] = numbered(2, 6, 1);
  tensors[kExperts + std::string("1.down_proj.lora_B.weight")] = numbered(8, 2, 2);
  EXPECT_THAT(read_tensors(targets, config_text(), tensors),
              FailsWith(Code::kInvalidFile, "another tensor of the file already binds to the same place"));
}

}  // namespace
}  // namespace cadre
