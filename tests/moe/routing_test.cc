// Routing at its edges: every class against its definition in double precision, written here from the published
// formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "moe/routing.h"
#include "support/exec_fixture.h"

namespace cadre::test {
namespace {

struct Routed {
  Ints ids;
  Floats weights;
};

struct Case {
  RoutingSpec spec;
  int experts = 8, k = 2;
  Floats logits;       // [tokens, experts]
  Floats bias, scale;  // [experts] or empty
};

Routed run(const Case& c, const Machine& machine = {}, DType bias_dtype = DType::kF32) {
  TestExec t(machine, std::size_t{1} << 16);
  const std::int64_t tokens = static_cast<std::int64_t>(c.logits.size()) / c.experts;
  RouteArgs args;
  args.ids = t.put({tokens, c.k}, Ints(static_cast<std::size_t>(tokens * c.k), -7));
  args.weights = t.make({tokens, c.k});
  args.logits = t.put_strided({tokens, c.experts}, c.logits);
  if (!c.bias.empty()) args.selection_bias = t.put(bias_dtype, {c.experts}, c.bias);
  if (!c.scale.empty()) args.per_expert_scale = t.put({c.experts}, c.scale);
  route(t.exec, args, c.spec);
  return {t.get_ints(args.ids), t.get(args.weights)};
}

using Doubles = std::vector<double>;

Doubles softmax(const Doubles& z) {
  double sum = 0;
  Doubles p;
  const double top = *std::max_element(z.begin(), z.end());
  for (const double v : z) p.push_back(std::exp(v - top));
  for (const double v : p) sum += v;
  for (double& v : p) v /= sum;
  return p;
}

// Indices of the k largest, descending, the lower index first among equals.
Ints largest(const Doubles& score, int k) {
  Ints order(score.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const double x = score[static_cast<std::size_t>(a)], y = score[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

// Phi-3.5's sparsemixer at inference, line by line as its authors publish it for two experts, jitter 0.01.
void sparse_mixer(const Doubles& scores, Ints& ids, Doubles& weights) {
  const std::size_t n = scores.size();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto argmax = [](const Doubles& v) {
    return static_cast<std::size_t>(std::max_element(v.begin(), v.end()) - v.begin());
  };
  // max, factor = clamp(|scores|, min = max), mask = (max - scores) / factor > 2 * jitter
  const std::size_t first = argmax(scores);
  const auto masked = [&](const Doubles& base, double top) {
    Doubles gates = base;
    for (std::size_t i = 0; i < n; ++i) {
      const double factor = std::max(std::fabs(scores[i]), std::fabs(top));
      if ((top - scores[i]) / factor > 0.02) gates[i] = -infinity;
    }
    return gates;
  };
  const Doubles first_gates = softmax(masked(scores, scores[first]));
  Doubles without = scores;
  without[first] = -infinity;
  const std::size_t second = argmax(without);
  const Doubles second_gates = softmax(masked(without, without[second]));
  ids = {static_cast<std::int32_t>(first), static_cast<std::int32_t>(second)};
  weights = {first_gates[first], second_gates[second]};
}

struct Expected {
  Ints ids;
  Doubles weights;
};

Expected expected(const Case& c, std::size_t token) {
  const std::size_t n = static_cast<std::size_t>(c.experts);
  Doubles z;
  for (std::size_t i = 0; i < n; ++i) z.push_back(static_cast<double>(c.logits[token * n + i]));
  Expected out;
  Doubles score = z, choice;
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  if (c.spec.kind == Routing::kSparseMixer) {
    sparse_mixer(z, out.ids, out.weights);
  } else {
    if (c.spec.kind == Routing::kSoftmaxTopK) score = softmax(z);
    if (c.spec.kind == Routing::kSigmoidTopK || c.spec.kind == Routing::kSigmoidInput) {
      for (double& v : score) v = sigmoid(v);
    }
    choice = c.spec.kind == Routing::kSigmoidInput ? z : score;
    for (std::size_t i = 0; i < c.bias.size(); ++i) choice[i] += static_cast<double>(c.bias[i]);
    if (c.spec.groups > 1) {
      const std::size_t groups = static_cast<std::size_t>(c.spec.groups), width = n / groups;
      Doubles group_score;
      for (std::size_t g = 0; g < groups; ++g) {
        Doubles in(choice.begin() + g * width, choice.begin() + (g + 1) * width);
        std::sort(in.rbegin(), in.rend());
        group_score.push_back(c.spec.selection_bias && width > 1 ? in[0] + in[1] : in[0]);
      }
      const Ints kept = largest(group_score, c.spec.topk_groups);
      for (std::size_t i = 0; i < n; ++i) {
        if (std::find(kept.begin(), kept.end(), static_cast<std::int32_t>(i / width)) == kept.end()) {
          choice[i] = -std::numeric_limits<double>::infinity();
        }
      }
    }
    out.ids = largest(choice, c.k);
    for (const std::int32_t id : out.ids) out.weights.push_back(score[static_cast<std::size_t>(id)]);
    if (c.spec.kind == Routing::kTopKSoftmax) out.weights = softmax(out.weights);
    if (c.spec.renormalize) {
      double sum = 0;
      for (const double w : out.weights) sum += w;
      if (sum > 0) {
        for (double& w : out.weights) w /= sum;
      }
    }
  }
  for (std::size_t j = 0; j < out.weights.size(); ++j) {
    out.weights[j] *= static_cast<double>(c.spec.scale);
    if (!c.scale.empty()) out.weights[j] *= static_cast<double>(c.scale[static_cast<std::size_t>(out.ids[j])]);
  }
  return out;
}

// The weights, and the ids wherever the choice is not within float32's rounding of a tie.
void check(const Case& c, const Machine& machine = {}) {
  const Routed got = run(c, machine);
  const std::size_t tokens = c.logits.size() / static_cast<std::size_t>(c.experts), k = static_cast<std::size_t>(c.k);
  for (std::size_t t = 0; t < tokens; ++t) {
    const Expected want = expected(c, t);
    for (std::size_t j = 0; j < k; ++j) {
      ASSERT_EQ(got.ids[t * k + j], want.ids[j]) << "token " << t << ", place " << j;
      ASSERT_NEAR(got.weights[t * k + j], want.weights[j], 3e-6 * std::fabs(want.weights[j]) + 1e-30)
          << "token " << t << ", place " << j;
    }
  }
}

// Logits on a grid of 1/64, distinct within a row: float32 and double order them alike in every class.
Floats distinct_logits(int tokens, int experts, unsigned seed, float shift = 0) {
  std::mt19937 random(seed);
  Floats out;
  for (int t = 0; t < tokens; ++t) {
    Floats row;
    for (int i = 0; i < experts; ++i) row.push_back(shift + static_cast<float>(i - experts / 2) / 64.0f);
    for (std::size_t i = row.size(); i > 1; --i) std::swap(row[i - 1], row[random() % i]);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

std::vector<RoutingSpec> classes() {
  std::vector<RoutingSpec> out;
  for (const Routing kind :
       {Routing::kSoftmaxTopK, Routing::kTopKSoftmax, Routing::kSigmoidTopK, Routing::kSigmoidInput}) {
    for (const bool renormalize : {false, true}) {
      for (const float scale : {1.0f, 2.5f}) {
        RoutingSpec spec;
        spec.kind = kind;
        spec.renormalize = renormalize;
        spec.scale = scale;
        out.push_back(spec);
      }
    }
  }
  return out;
}

TEST(MoeRouting, EveryClassFollowsItsDefinition) {
  for (const RoutingSpec& spec : classes()) {
    for (const auto& [experts, k] : {std::pair{1, 1}, {8, 2}, {8, 8}, {64, 6}, {60, 4}, {512, 22}}) {
      SCOPED_TRACE("class " + std::to_string(static_cast<int>(spec.kind)) + ", " + std::to_string(experts) +
                   " experts, top " + std::to_string(k) + (spec.renormalize ? ", renormalised" : ""));
      for (const float shift : {0.0f, -30.0f}) {  // and all logits negative
        Case c{spec, experts, k, distinct_logits(9, experts, 1, shift), {}, {}};
        ASSERT_NO_FATAL_FAILURE(check(c));
        c.scale = random_floats(2, experts, 2);
        c.spec.per_expert_scale = true;
        ASSERT_NO_FATAL_FAILURE(check(c, {"test", 2}));
      }
    }
  }
}

TEST(MoeRouting, TiesGoToTheLowerId) {
  for (RoutingSpec spec : classes()) {
    Case c{spec, 6, 3, Floats(6, 0.25f), {}, {}};
    EXPECT_EQ(run(c).ids, (Ints{0, 1, 2}));
    c.logits = {1, 3, 1, 3, 3, 1};
    EXPECT_EQ(run(c).ids, (Ints{1, 3, 4}));
    c.logits = {-5, -5, -1, -5, -5, -5};
    EXPECT_EQ(run(c).ids, (Ints{2, 0, 1}));
  }
  // A sigmoid that saturates ties what the logits still tell apart: DeepSeek's class chooses by the sigmoid, Llama 4's
  // by the logits.
  Case c{{}, 3, 1, {40, 50, 60}, {}, {}};
  c.spec.kind = Routing::kSigmoidTopK;
  EXPECT_EQ(run(c).ids, (Ints{0}));
  c.spec.kind = Routing::kSigmoidInput;
  EXPECT_EQ(run(c).ids, (Ints{2}));
}

TEST(MoeRouting, ASelectionBiasMovesTheChoiceAndNeverTheWeight) {
  for (const bool renormalize : {false, true}) {
    Case c{{}, 8, 2, distinct_logits(5, 8, 3), Floats(8, 0.0f), {}};
    c.spec.kind = Routing::kSigmoidTopK;
    c.spec.selection_bias = true;
    c.spec.renormalize = renormalize;
    c.spec.scale = 2.5f;
    c.bias[6] = 1e6f;   // always chosen
    c.bias[1] = -1e6f;  // never
    check(c);
    const Routed got = run(c);
    for (std::size_t t = 0; t < 5; ++t) {
      EXPECT_EQ(got.ids[2 * t], 6);
      EXPECT_NE(got.ids[2 * t + 1], 1);
      EXPECT_LE(got.weights[2 * t], 2.5f);
    }
    // The file's type counts: a bfloat16 bias is widened, not reread as float32.
    const Routed half = run(c, {}, DType::kBF16);
    EXPECT_EQ(half.ids, got.ids);
    EXPECT_EQ(half.weights, got.weights);
  }
}

TEST(MoeRouting, GroupsAreChosenBeforeExperts) {
  for (const bool bias : {false, true}) {
    for (const auto& [experts, groups, keep, k] :
         {std::tuple{16, 4, 2, 4}, {256, 8, 4, 8}, {16, 16, 5, 3}, {16, 2, 1, 8}, {12, 3, 3, 5}}) {
      Case c{{}, experts, k, distinct_logits(12, experts, 4), {}, {}};
      c.spec.kind = bias ? Routing::kSigmoidTopK : Routing::kSoftmaxTopK;
      c.spec.renormalize = bias;
      c.spec.groups = groups;
      c.spec.topk_groups = keep;
      c.spec.selection_bias = bias;
      if (bias) c.bias = random_floats(5, experts, 0.25f);
      SCOPED_TRACE(std::to_string(experts) + " experts in " + std::to_string(groups) + " groups");
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
  }
  // The best expert loses where its group does: 0.9 alone against 0.8 + 0.7.
  Case c{{}, 4, 1, {2.2f, -9, 1.4f, 0.85f}, Floats(4, 0.0f), {}};
  c.spec.kind = Routing::kSigmoidTopK;
  c.spec.groups = 2;
  c.spec.selection_bias = true;
  EXPECT_EQ(run(c).ids, (Ints{2}));
  c.spec.selection_bias = false;  // by the best one it wins
  c.bias.clear();
  EXPECT_EQ(run(c).ids, (Ints{0}));
}

// More experts asked for than the kept groups hold: still k distinct ids in range.
TEST(MoeRouting, TooFewExpertsInTheKeptGroupsStillGiveDistinctIds) {
  Case c{{}, 8, 5, distinct_logits(4, 8, 6), {}, {}};
  c.spec.groups = 4;
  c.spec.topk_groups = 1;
  const Routed got = run(c);
  for (std::size_t t = 0; t < 4; ++t) {
    Ints row(got.ids.begin() + 5 * t, got.ids.begin() + 5 * t + 5);
    std::sort(row.begin(), row.end());
    EXPECT_EQ(std::unique(row.begin(), row.end()), row.end());
    EXPECT_GE(row.front(), 0);
    EXPECT_LT(row.back(), 8);
  }
}

TEST(MoeRouting, SparseMixerFollowsItsTwoPasses) {
  for (const auto& [experts, shift] : {std::pair{2, 0.0f}, {16, 0.0f}, {16, -30.0f}, {16, 30.0f}, {64, 5.0f}}) {
    Case c{{}, experts, 2, distinct_logits(40, experts, 7, shift), {}, {}};
    c.spec.kind = Routing::kSparseMixer;
    SCOPED_TRACE(std::to_string(experts) + " experts around " + std::to_string(shift));
    ASSERT_NO_FATAL_FAILURE(check(c));
    c.spec.scale = 0.5f;
    ASSERT_NO_FATAL_FAILURE(check(c, {"cpu", 3}));
  }
  // Close logits share the weight, a far one does not; the weights need not add up to 1.
  Case c{{}, 4, 2, {1.0f, 0.99f, 0.2f, 0.1f}, {}, {}};
  c.spec.kind = Routing::kSparseMixer;
  const Routed got = run(c);
  EXPECT_EQ(got.ids, (Ints{0, 1}));
  EXPECT_NEAR(got.weights[0], 1 / (1 + std::exp(-0.01)), 1e-6);
  EXPECT_EQ(got.weights[1], 1.0f);
}

TEST(MoeRouting, WeightsThatUnderflowStayFinite) {
  Case c{{}, 4, 2, {-200, -201, -202, -203}, {}, {}};
  c.spec.kind = Routing::kSigmoidTopK;
  c.spec.renormalize = true;
  const Routed got = run(c);
  for (const float w : got.weights) EXPECT_TRUE(std::isfinite(w));
}

TEST(MoeRouting, NanLogitsGiveIdsInRange) {
  for (RoutingSpec spec : classes()) {
    Case c{spec, 5, 3, Floats(5, std::nanf("")), {}, {}};
    c.logits[2] = 1;
    Ints ids = run(c).ids;
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
    EXPECT_GE(ids.front(), 0);
    EXPECT_LT(ids.back(), 5);
  }
}

TEST(MoeRouting, EveryMachineGivesTheSameBits) {
  for (const RoutingSpec& spec : classes()) {
    const Case c{spec, 40, 6, random_floats(8, 40 * 70, 4), {}, {}};
    const Routed first = run(c);
    for (const Machine& machine : all_machines()) {
      const Routed got = run(c, machine);
      EXPECT_EQ(got.ids, first.ids);
      expect_same_bits(got.weights, first.weights, machine.device);
    }
  }
}

TEST(MoeRouting, NoTokens) {
  const Case c{{}, 4, 2, {}, {}, {}};
  EXPECT_TRUE(run(c).ids.empty());
}

}  // namespace
}  // namespace cadre::test
