// Sampling written down as plainly as possible: full sorts, probabilities, double throughout. Shares no code with the
// engine's but the noise.
#pragma once

#include <cadre/sampling.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace cadre::test {

// The indices of `x` from the highest value to the lowest, equal ones in order.
template <class T>
std::vector<std::size_t> falling(const std::vector<T>& x) {
  std::vector<std::size_t> order(x.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
  return order;
}

inline std::vector<double> softmax(const std::vector<double>& x) {
  const double highest = *std::max_element(x.begin(), x.end());
  std::vector<double> p(x.size());
  double total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) total += p[i] = std::exp(x[i] - highest);
  for (double& value : p) value /= total;
  return p;
}

// The probabilities that are left after every step; 0 for dropped tokens.
inline std::vector<double> reference_distribution(const std::vector<float>& logits, const SamplingParams& params,
                                                  const std::vector<std::int32_t>& prompt,
                                                  const std::vector<std::int32_t>& output) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) x[id] = static_cast<float>(x[id] + static_cast<double>(bias));
  std::set<std::int32_t> seen(prompt.begin(), prompt.end());
  seen.insert(output.begin(), output.end());
  for (const std::int32_t id : seen) {
    if (x[id] > 0) {
      x[id] /= params.repetition_penalty;
    } else {
      x[id] *= params.repetition_penalty;
    }
    const auto count = static_cast<double>(std::count(output.begin(), output.end(), id));
    x[id] -= count * params.frequency_penalty + (count > 0 ? params.presence_penalty : 0);
    x[id] = static_cast<float>(x[id]);  // the row of logits is float
  }
  std::vector<double> p(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) p[i] = x[i] / params.temperature;
  p = softmax(p);

  const double threshold = params.min_p * *std::max_element(p.begin(), p.end());
  for (double& value : p) value = value < threshold ? 0 : value;

  const std::vector<std::size_t> order = falling(x);
  if (params.top_k > 0) {
    for (std::size_t i = static_cast<std::size_t>(params.top_k); i < order.size(); ++i) p[order[i]] = 0;
  }
  double total = 0;
  for (const std::size_t id : order) total += p[id];
  if (params.top_p < 1) {
    double before = 0;
    bool first = true;
    for (const std::size_t id : order) {
      const double own = p[id];
      if (!first && before >= params.top_p * total) p[id] = 0;
      before += own;
      first = false;
    }
    total = 0;
    for (const std::size_t id : order) total += p[id];
  }
  for (double& value : p) value /= total;
  return p;
}

// The token at `uniform` of a distribution, in the order of falling probability, then id.
inline std::int32_t reference_draw(const std::vector<double>& p, double uniform) {
  const std::vector<std::size_t> order = falling(p);
  double before = 0;
  for (const std::size_t id : order) {
    before += p[id];
    if (before > uniform) return static_cast<std::int32_t>(id);
  }
  return static_cast<std::int32_t>(order[0]);
}

// The same on every standard library: no std distribution.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + uniform() * (high - low); }
  std::int32_t below(std::int32_t end) { return static_cast<std::int32_t>(uniform() * end); }
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }
  std::vector<float> logits(std::size_t count, double scale) {
    std::vector<float> x(count);
    for (float& value : x) value = static_cast<float>(normal() * scale);
    return x;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace cadre::test
