#include "engine/sampling/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace cadre {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Probabilities relative to the most likely token's: exp((x - highest) / T), so the highest is 1 whatever T is.
class Weights {
 public:
  Weights(const LogitRange& range, const SamplingParams& params)
      : highest_(range.highest),
        temperature_(params.temperature),
        furthest_(params.min_p > 0 ? -std::log(params.min_p) : std::numeric_limits<double>::infinity()) {}

  // How many units of log-probability a token is below the most likely.
  double distance(float logit) const { return (highest_ - static_cast<double>(logit)) / temperature_; }
  // min_p, whose limit in log-probability needs no exp.
  bool keeps(double distance) const { return distance <= furthest_; }
  static double of(double distance) { return std::exp(-distance); }
  double weight(const RankedToken& token) const { return of(distance(token.logit())); }

 private:
  double highest_;
  double temperature_;
  double furthest_;
};

// The end of a walk over sorted tokens.
struct Stop {
  std::size_t at;  // the token that passes the target; the last one with any weight if, by rounding, none does
  double before;   // cumulated weight before it
  double through;  // and with it
};

// From `cumulated` weight, the first token that brings it to `target` (`reach`: at least; else strictly above).
Stop walk(std::span<const RankedToken> sorted, const Weights& weights, double cumulated, double target, bool reach) {
  Stop stop{0, cumulated, cumulated};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double weight = weights.weight(sorted[i]);
    if (i > 0 && weight == 0) break;
    const double next = cumulated + weight;
    stop = {i, cumulated, next};
    if (reach ? next >= target : next > target) break;
    cumulated = next;
  }
  return stop;
}

// Few candidates: the top_k most likely, sorted.
std::int32_t draw_from_top(std::span<const float> logits, const LogitRange& range, const SamplingParams& params,
                           const Weights& weights, double uniform) {
  std::vector<RankedToken> top = top_tokens(logits, range, static_cast<std::size_t>(params.top_k));
  while (top.size() > 1 && !weights.keeps(weights.distance(top.back().logit()))) top.pop_back();
  double total = 0;
  for (const RankedToken& token : top) total += weights.weight(token);
  if (params.top_p < 1) {
    const Stop nucleus = walk(top, weights, 0, params.top_p * total, /*reach=*/true);
    top.resize(nucleus.at + 1);
    total = nucleus.through;
  }
  return top[walk(top, weights, 0, uniform * total, /*reach=*/false).at].id();
}

// Many candidates: the whole vocabulary, of which only the buckets that decide are sorted.
class BucketDraw {
 public:
  BucketDraw(std::span<const float> logits, const LogitRange& range, const SamplingParams& params,
             const Weights& weights)
      // Tokens e^-64 times as likely as the best need no resolution: they share the last bucket.
      : logits_(logits), weights_(weights), buckets_(range, 64 * params.temperature) {
    for (const float x : logits_) {
      const double distance = weights_.distance(x);
      if (x != kMasked && weights_.keeps(distance)) mass_[buckets_.of(x)] += Weights::of(distance);
    }
  }

  std::int32_t draw(double top_p, double uniform) {
    double total = 0;
    for (const double mass : mass_) total += mass;
    if (top_p < 1) total = cut(top_p * total);
    const Place place = find(uniform * total, /*reach=*/false);
    std::vector<RankedToken> sorted = bucket(place.bucket);
    if (place.bucket == cut_bucket_) sorted.resize(cut_size_);
    return sorted[walk(sorted, weights_, place.before, uniform * total, /*reach=*/false).at].id();
  }

 private:
  struct Place {
    std::size_t bucket;  // where cumulated mass passes the target; the last one with any mass if, by rounding, none
    double before;       // mass of all buckets before it
  };

  Place find(double target, bool reach) const {
    Place place{0, 0};
    double cumulated = 0;
    for (std::size_t b = 0; b < mass_.size(); ++b) {
      if (mass_[b] == 0) continue;
      const double next = cumulated + mass_[b];
      place = {b, cumulated};
      if (reach ? next >= target : next > target) break;
      cumulated = next;
    }
    return place;
  }

  std::vector<RankedToken> bucket(std::size_t wanted) const {
    std::vector<RankedToken> tokens;
    for (std::size_t id = 0; id < logits_.size(); ++id) {
      const float x = logits_[id];
      if (x != kMasked && buckets_.of(x) == wanted && weights_.keeps(weights_.distance(x))) tokens.emplace_back(x, id);
    }
    if (!std::is_sorted(tokens.begin(), tokens.end())) std::sort(tokens.begin(), tokens.end());  // often equal logits
    return tokens;
  }

  // Drops every token after the one that brings the mass to `target`; returns the mass kept.
  double cut(double target) {
    const Place place = find(target, /*reach=*/true);
    const Stop nucleus = walk(bucket(place.bucket), weights_, place.before, target, /*reach=*/true);
    cut_bucket_ = place.bucket;
    cut_size_ = nucleus.at + 1;
    mass_[place.bucket] = nucleus.through - place.before;
    std::fill(mass_.begin() + static_cast<std::ptrdiff_t>(place.bucket) + 1, mass_.end(), 0.0);
    return nucleus.through;
  }

  std::span<const float> logits_;
  const Weights& weights_;
  LogitBuckets buckets_;
  std::array<double, LogitBuckets::kCount> mass_{};
  std::size_t cut_bucket_ = LogitBuckets::kCount;  // none
  std::size_t cut_size_ = 0;
};

}  // namespace

std::int32_t draw(std::span<const float> logits, const LogitRange& range, const SamplingParams& params,
                  double uniform) {
  const Weights weights(range, params);
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size()) {
    return draw_from_top(logits, range, params, weights, uniform);
  }
  return BucketDraw(logits, range, params, weights).draw(params.top_p, uniform);
}

}  // namespace cadre
