#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "support/exec_fixture.h"

namespace cadre::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

double act(const ActivationSpec& spec, double x) {
  switch (spec.kind) {
    case Activation::kSilu:
      return x * sigmoid_of(x);
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
    case Activation::kSwigluOai:
      return x * sigmoid_of(spec.alpha * x);
  }
  return 0;
}

Floats activated(const ActivationSpec& spec, const Floats& gate, const Floats& up, std::int64_t tokens,
                 std::int64_t width) {
  const auto ops = make_reference_ops();
  return run_everywhere([&](TestExec& run) {
    const View out = run.make({tokens, width}, 1);
    const View by = spec.gated ? run.put_strided({tokens, width}, gate, 2) : View();
    ops->activate(run.exec, out, by, run.put_strided({tokens, width}, up), spec);
    return run.get(out);
  });
}

TEST(Activate, EveryKindGatedOrNotClampedOrNot) {
  const Floats gate = random_floats(1, 4 * 31, 6), up = random_floats(2, 4 * 31, 6);
  for (const Activation kind :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu2, Activation::kSwigluOai}) {
    for (const bool gated : {true, false}) {
      for (const float limit : {kInfinity, 2.5f}) {
        ActivationSpec spec;
        spec.kind = kind;
        spec.gated = gated;
        spec.limit = limit;
        if (kind == Activation::kSwigluOai) spec.alpha = 1.702f, spec.beta = 1.0f;
        std::vector<Exact> want;
        for (std::size_t i = 0; i < up.size(); ++i) {
          Exact y;
          if (gated) {
            const double g = std::min<double>(gate[i], limit), u = std::clamp<double>(up[i], -limit, limit);
            y.add(act(spec, g) * (u + spec.beta));
            y.magnitude = (std::fabs(act(spec, g)) + std::fabs(g) * 0.1) * (std::fabs(u) + spec.beta);
          } else {
            y.add(act(spec, up[i]));
            y.magnitude += std::fabs(up[i]) * 0.1;  // gelu cancels where x is far below zero
          }
          want.push_back(y);
        }
        expect_close(activated(spec, gate, up, 4, 31), want);
      }
    }
  }
}

TEST(Activate, ANanStaysOne) {
  const float nan = std::nanf("");
  for (const Activation kind :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu2, Activation::kSwigluOai}) {
    ActivationSpec spec;
    spec.kind = kind;
    spec.limit = 7;
    const Floats got = activated(spec, {nan, 1}, {1, nan}, 1, 2);
    EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1]));
    spec.gated = false;
    EXPECT_TRUE(std::isnan(activated(spec, {}, {nan}, 1, 1)[0]));
  }
}

TEST(Activate, Relu2OfMinusInfinityIsZero) {
  ActivationSpec spec;
  spec.kind = Activation::kRelu2;
  spec.gated = false;
  EXPECT_EQ(activated(spec, {}, {-kInfinity, kInfinity}, 1, 2), (Floats{0, kInfinity}));
}

TEST(Elementwise, AddSigmoidAndClamp) {
  const auto ops = make_reference_ops();
  const Floats a = random_floats(1, 5 * 9), b = random_floats(2, 5 * 9), gate = random_floats(3, 5, 3);
  std::vector<Exact> sums, scaled, clamped;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums.emplace_back().add(static_cast<double>(a[i]) + b[i]);
    scaled.emplace_back().add(a[i] * sigmoid_of(gate[i / 9]));
    clamped.emplace_back().add(std::clamp(a[i], -0.25f, 0.25f));
  }
  const auto add = [&](bool in_place) {
    return run_everywhere([&](TestExec& run) {
      const View in = run.put_strided({5, 9}, a), out = in_place ? in : run.make({5, 9}, 2);
      ops->add(run.exec, out, in, run.put_strided({5, 9}, b, 1));
      return run.get(out);
    });
  };
  expect_close(add(false), sums);
  expect_same_bits(add(true), add(false), "in place");
  expect_close(run_everywhere([&](TestExec& run) {
                 const View x = run.put_strided({5, 9}, a);
                 ops->scale_by_sigmoid(run.exec, x, run.put_strided({5, 1}, gate, 4));
                 return run.get(x);
               }),
               scaled);
  for (const bool heads : {false, true}) {
    expect_close(run_everywhere([&](TestExec& run) {
                   const View x = run.put_strided({5, 9}, a);
                   ops->clamp(run.exec, heads ? x.split_last(3) : x, 0.25f);
                   return run.get(x);
                 }),
                 clamped, 0);
  }
}

TEST(Elementwise, NoRows) {
  const auto ops = make_reference_ops();
  EXPECT_TRUE(run_everywhere([&](TestExec& run) {
                const View none = run.make({0, 8}), gate = run.make({0, 1});
                ops->add(run.exec, none, none, none);
                ops->activate(run.exec, none, none, none, {});
                ops->scale_by_sigmoid(run.exec, none, gate);
                ops->clamp(run.exec, none, 1);
                return run.get(none);
              }).empty());
}

}  // namespace
}  // namespace cadre::test
