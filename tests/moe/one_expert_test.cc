// A router that sends every token to one expert, from its logits to the layer's output: every backend that admits the
// layer, the reference among them, against the expert's formula in double precision.
#include <cmath>

#include "moe/moe_runner.h"
#include "moe/routing.h"

namespace cadre::test {
namespace {

constexpr int kBusy = 5;

LayerSpec layer(Routing kind, bool gated, int top_k) {
  LayerSpec s;
  s.experts = 8;
  s.top_k = top_k;
  s.hidden = 96;
  s.intermediate = 128;
  s.routing.kind = kind;
  s.activation.kind = gated ? Activation::kSilu : Activation::kRelu2;
  s.activation.gated = gated;
  s.router_weight_on_input = kind == Routing::kSigmoidInput;
  return s;
}

// The logits of every token have the busy expert far ahead, the others at random.
MoeBatch routed(const LayerSpec& s, std::int64_t tokens) {
  MoeBatch batch = random_batch(s, tokens, 0, Ids::kDistinct, 7);
  Floats logits = random_floats(8, tokens * s.experts);
  Floats scratch(static_cast<std::size_t>(2 * s.experts));
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* row = logits.data() + t * s.experts;
    row[kBusy] = 6;
    route_row(s.routing, row, nullptr, nullptr, s.experts, s.top_k, batch.ids.data() + t * s.top_k,
              batch.weights.data() + t * s.top_k, scratch.data());
    EXPECT_EQ(batch.ids[static_cast<std::size_t>(t * s.top_k)], kBusy);
  }
  return batch;
}

// Adds weight * expert(x), or expert(weight * x), to out. `magnitude` as moe_exact has it, roughly: sums of absolute
// values.
void add_expert(const LayerSpec& s, const RandomWeights& weights, int expert, double weight, const float* x,
                Exact* out) {
  const auto row = [&](const Floats& matrix, std::size_t width, std::size_t i, const auto& of, double* size) {
    double sum = 0;
    *size = 0;
    for (std::size_t k = 0; k < width; ++k) {
      const double term = static_cast<double>(matrix[i * width + k]) * of(k);
      sum += term;
      *size += std::fabs(term);
    }
    return sum;
  };
  const std::size_t hidden = static_cast<std::size_t>(s.hidden), width = static_cast<std::size_t>(s.intermediate);
  const double in = s.router_weight_on_input ? weight : 1, outer = s.router_weight_on_input ? 1 : weight;
  const auto of_x = [&](std::size_t k) { return in * static_cast<double>(x[k]); };
  std::vector<double> h(width), h_size(width);
  for (std::size_t i = 0; i < width; ++i) {
    double gate_size = 0, up_size = 0;
    const double up = row(weights.values(expert, 1), hidden, i, of_x, &up_size);
    if (s.activation.gated) {
      const double gate = row(weights.values(expert, 0), hidden, i, of_x, &gate_size);
      const double act = gate / (1 + std::exp(-gate));
      h[i] = act * up;
      h_size[i] = 1.1 * gate_size * std::fabs(up) + std::fabs(act) * up_size;
    } else {
      const double positive = std::max(up, 0.0);
      h[i] = positive * positive;
      h_size[i] = 2 * positive * up_size + h[i];
    }
  }
  for (std::size_t o = 0; o < hidden; ++o) {
    double size = 0, rounding = 0;
    out[o].value += outer * row(weights.values(expert, 2), width, o, [&](std::size_t k) { return h[k]; }, &size);
    row(weights.values(expert, 2), width, o, [&](std::size_t k) { return h_size[k]; }, &rounding);
    out[o].magnitude += std::fabs(outer) * (size + rounding);
  }
}

TEST(OneExpert, TakesEveryToken) {
  std::map<std::string, int> admitted;
  for (const Routing kind : {Routing::kSoftmaxTopK, Routing::kTopKSoftmax, Routing::kSigmoidTopK, Routing::kSparseMixer,
                             Routing::kSigmoidInput}) {
    for (const bool gated : {true, false}) {
      const LayerSpec s = layer(kind, gated, kind == Routing::kSigmoidInput ? 1 : 2);
      const RandomWeights weights(s, 3);
      for (const std::int64_t tokens : {1, 3, 33, 200}) {
        const MoeBatch batch = routed(s, tokens);
        std::vector<Exact> want(static_cast<std::size_t>(tokens * s.hidden));
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (int j = 0; j < s.top_k; ++j) {
            const std::size_t at = static_cast<std::size_t>(t * s.top_k + j);
            add_expert(s, weights, batch.ids[at], static_cast<double>(batch.weights[at]), batch.x.data() + t * s.hidden,
                       want.data() + t * s.hidden);
          }
        }
        for (const MoeBackend* backend : built_in_backends()) {
          Deployment deployment = here();
          deployment.max_tokens = 256;
          if (!backend->check(s, deployment).empty()) continue;
          for (const Machine& machine : {Machine{"cpu", 1}, Machine{"cpu", 3}}) {
            SCOPED_TRACE(std::string(backend->name()) + ", routing " + std::to_string(static_cast<int>(kind)) +
                         (gated ? ", gated, " : ", plain, ") + std::to_string(tokens) + " tokens");
            const Result<Floats> got =
                run_moe("require " + std::string(backend->name()), s, deployment, weights, {}, batch, machine);
            ASSERT_TRUE(got.ok()) << got.status().message();
            ASSERT_NO_FATAL_FAILURE(expect_close(*got, want, 3e-6));
          }
          ++admitted[backend->name()];
        }
      }
    }
  }
  EXPECT_EQ(admitted["cpu_reference"], 40);
  EXPECT_GE(admitted["cpu_vector"], 8);
}

}  // namespace
}  // namespace cadre::test
