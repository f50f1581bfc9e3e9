// Deliberately plain: loops over definitions, double precision, nothing from src/ but data types.
#include <cmath>
#include <cstring>

#include "moe/moe_runner.h"

namespace cadre::test {
namespace {

// A value and the bound of its error in units of a backend's relative error.
struct Bounded {
  double value = 0, size = 0;
};

double read(const View& v, std::int64_t i, std::int64_t j) {
  const std::int64_t at = i * v.stride[0] + j * v.stride[1];
  if (v.dtype == DType::kF32) return static_cast<const float*>(v.data)[at];
  std::uint16_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(v.data) + at * 2, 2);
  if (v.dtype == DType::kBF16) {
    const std::uint32_t word = std::uint32_t{bits} << 16;
    float f = 0;
    std::memcpy(&f, &word, 4);
    return f;
  }
  const int exponent = bits >> 10 & 31;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1, fraction = bits & 0x3ff;
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

// matrix row [n, begin..end) times x, with the error of x.
Bounded product(const Floats& matrix, std::int64_t columns, std::int64_t n, const std::vector<Bounded>& x,
                std::int64_t begin, std::int64_t end) {
  Bounded sum;
  for (std::int64_t k = begin; k < end; ++k) {
    const double w = matrix[static_cast<std::size_t>(n * columns + k)];
    sum.value += w * x[static_cast<std::size_t>(k)].value;
    sum.size += std::fabs(w) * (std::fabs(x[static_cast<std::size_t>(k)].value) + x[static_cast<std::size_t>(k)].size);
  }
  return sum;
}

std::vector<Bounded> shrunk(const LowRank& term, const std::vector<Bounded>& x, std::int64_t begin, std::int64_t end) {
  std::vector<Bounded> out;
  for (std::int64_t r = 0; term.a.rank != 0 && r < term.a.shape[0]; ++r) {
    Bounded sum;
    for (std::int64_t k = begin; k < end; ++k) {
      const double a = read(term.a, r, k) * static_cast<double>(term.scale);
      sum.value += a * x[static_cast<std::size_t>(k)].value;
      sum.size +=
          std::fabs(a) * (std::fabs(x[static_cast<std::size_t>(k)].value) + x[static_cast<std::size_t>(k)].size);
    }
    out.push_back(sum);
  }
  return out;
}

void expand(const LowRank& term, const std::vector<Bounded>& shrunk, std::int64_t n, Bounded& y) {
  for (std::size_t r = 0; r < shrunk.size(); ++r) {
    const double b = read(term.b, n, static_cast<std::int64_t>(r));
    y.value += b * shrunk[r].value;
    y.size += std::fabs(b) * (std::fabs(shrunk[r].value) + shrunk[r].size);
  }
}

double activated(const ActivationSpec& a, double x) {
  switch (a.kind) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3))));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
    case Activation::kSwigluOai:
      return x / (1 + std::exp(-static_cast<double>(a.alpha) * x));
  }
  return 0;
}

// At most this steep between x and x plus its error: 1.13 is the steepest point of the gelus, 1.1 of silu.
double slope(const ActivationSpec& a, double x) { return a.kind == Activation::kRelu2 ? 2 * std::fabs(x) : 1.13; }

Bounded activate(const ActivationSpec& a, const Bounded& gate, const Bounded& up) {
  const double limit = a.limit;
  Bounded out;
  if (!a.gated) {
    out.value = activated(a, up.value);
    out.size = slope(a, up.value) * up.size + std::fabs(out.value) + std::fabs(up.value);
    return out;
  }
  const double g = std::fmin(gate.value, limit), u = std::fmax(-limit, std::fmin(up.value, limit));
  const double left = activated(a, g), right = a.kind == Activation::kSwigluOai ? u + static_cast<double>(a.beta) : u;
  out.value = left * right;
  // |g| as well: the published forms of gelu lose digits of x beside 1, not of the result.
  out.size =
      (slope(a, g) * gate.size + std::fabs(g)) * std::fabs(right) + std::fabs(left) * (up.size + std::fabs(right));
  return out;
}

}  // namespace

std::vector<Exact> moe_exact(const LayerSpec& spec, const RandomWeights& weights, const Adapters& adapters,
                             const MoeBatch& batch, const ExpertShard& shard) {
  const std::int64_t width = spec.latent > 0 ? spec.latent : spec.hidden, middle = spec.intermediate;
  const std::int64_t part = (middle + shard.tensor_size - 1) / shard.tensor_size;
  const std::int64_t from = std::min(middle, part * shard.tensor_rank), to = std::min(middle, from + part);
  const int each = (spec.experts + shard.expert_size - 1) / shard.expert_size;
  const int first = each * shard.expert_rank, last = std::min(spec.experts, first + each);
  std::vector<Exact> out(static_cast<std::size_t>(batch.tokens * width));
  for (std::int64_t t = 0; t < batch.tokens; ++t) {
    for (std::int64_t j = 0; j < batch.top_k; ++j) {
      const std::int32_t e = batch.ids[static_cast<std::size_t>(t * batch.top_k + j)];
      if (e < first || e >= last) continue;
      const double weight = batch.weights[static_cast<std::size_t>(t * batch.top_k + j)];
      const auto adapter = adapters.find(batch.slots[static_cast<std::size_t>(t)]);
      const auto term = [&](const std::vector<LowRank> LayerLora::* which) {
        if (adapter == adapters.end()) return LowRank{};
        const std::vector<LowRank>& all = adapter->second->lora.*which;
        return all.empty() ? LowRank{} : all[static_cast<std::size_t>(e)];
      };
      const auto bias = [&](int which, std::int64_t n, Bounded& y) {
        if (!spec.expert_bias) return;
        const double b = weights.bias_values(e, which)[static_cast<std::size_t>(n)];
        y.value += b;
        y.size += std::fabs(b);
      };
      std::vector<Bounded> x(static_cast<std::size_t>(width)), h(static_cast<std::size_t>(middle));
      for (std::int64_t k = 0; k < width; ++k) {
        double value = batch.x[static_cast<std::size_t>(t * width + k)];
        if (spec.router_weight_on_input) value *= weight;
        x[static_cast<std::size_t>(k)] = {value, 0};
      }
      const LowRank gate_term = term(&LayerLora::gate), up_term = term(&LayerLora::up),
                    down_term = term(&LayerLora::down);
      const auto gate_shrunk = shrunk(gate_term, x, 0, width), up_shrunk = shrunk(up_term, x, 0, width);
      for (std::int64_t n = from; n < to; ++n) {
        Bounded gate, up = product(weights.values(e, 1), width, n, x, 0, width);
        bias(1, n, up);
        expand(up_term, up_shrunk, n, up);
        if (spec.activation.gated) {
          gate = product(weights.values(e, 0), width, n, x, 0, width);
          bias(0, n, gate);
          expand(gate_term, gate_shrunk, n, gate);
        }
        h[static_cast<std::size_t>(n)] = activate(spec.activation, gate, up);
      }
      const auto down_shrunk = shrunk(down_term, h, from, to);
      for (std::int64_t n = 0; n < width; ++n) {
        Bounded y = product(weights.values(e, 2), middle, n, h, from, to);
        if (shard.tensor_rank == 0) bias(2, n, y);
        expand(down_term, down_shrunk, n, y);
        const double w = spec.router_weight_on_input ? 1 : weight;
        Exact& sum = out[static_cast<std::size_t>(t * width + n)];
        sum.value += w * y.value;
        sum.magnitude += std::fabs(w) * (y.size + std::fabs(y.value));
      }
    }
  }
  return out;
}

}  // namespace cadre::test
