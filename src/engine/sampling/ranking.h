// Finding the most likely of many tokens without sorting the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace cadre {

// A token and its logit as one number: ascending order is logit descending, then id ascending. -0 equals 0.
class RankedToken {
 public:
  RankedToken() = default;
  RankedToken(float logit, std::size_t id);
  float logit() const;
  std::int32_t id() const { return static_cast<std::int32_t>(key_ & 0xffffffffu); }
  bool operator<(const RankedToken& other) const { return key_ < other.key_; }

 private:
  std::uint64_t key_ = 0;
};

// The extremes of a row of logits. Minus infinity marks a token that cannot be chosen and counts as absent.
struct LogitRange {
  float highest = 0;
  float lowest = 0;
};

// Refuses NaN and plus infinity, naming the token, and rows without any token to choose.
[[nodiscard]] Result<LogitRange> logit_range(std::span<const float> logits);

// The lowest id among the tokens with the highest logit.
[[nodiscard]] std::int32_t argmax(std::span<const float> logits, float highest);

// Cuts a row's logits into buckets of falling value: every token of bucket b comes before every token of bucket b + 1.
// So what depends on rank or on cumulated probability needs one pass and the sort of the bucket that decides.
class LogitBuckets {
 public:
  // 2,048 counters stay in the first-level cache, and a vocabulary of 256k leaves about a hundred tokens in each.
  static constexpr std::size_t kCount = 2048;

  // Spreads the logits within `span` of the highest over the buckets; the rest falls into the last.
  LogitBuckets(const LogitRange& range, double span);

  std::size_t of(float logit) const {
    const double bucket = (highest_ - static_cast<double>(logit)) * scale_;
    return bucket < static_cast<double>(kCount - 1) ? static_cast<std::size_t>(bucket) : kCount - 1;
  }

 private:
  double highest_;
  double scale_;
};

// The `count` most likely tokens in order; fewer if the row has fewer.
[[nodiscard]] std::vector<RankedToken> top_tokens(std::span<const float> logits, const LogitRange& range,
                                                  std::size_t count);

}  // namespace cadre
