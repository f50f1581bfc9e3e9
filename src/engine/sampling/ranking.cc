#include "engine/sampling/ranking.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace cadre {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kSign = 0x80000000u;

}  // namespace

RankedToken::RankedToken(float logit, std::size_t id) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 + 0 is 0
  const std::uint32_t ascending = (bits & kSign) != 0 ? ~bits : bits | kSign;
  key_ = std::uint64_t{~ascending} << 32 | static_cast<std::uint32_t>(id);
}

float RankedToken::logit() const {
  const std::uint32_t ascending = ~static_cast<std::uint32_t>(key_ >> 32);
  return std::bit_cast<float>((ascending & kSign) != 0 ? ascending ^ kSign : ~ascending);
}

Result<LogitRange> logit_range(std::span<const float> logits) {
  bool sound = true;
  float highest = -kInfinity;
  float lowest = kInfinity;
  for (const float x : logits) {
    sound = sound && x < kInfinity;  // false for NaN
    highest = x > highest ? x : highest;
    const float seen = x > -kInfinity ? x : kInfinity;
    lowest = seen < lowest ? seen : lowest;
  }
  if (!sound) {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
    return error(Code::kInvalidFile, "the logit of token ", bad - logits.begin(), " is ", *bad,
                 ", want a finite number: the model's or the adapter's weights hold or lead to numbers out of range");
  }
  if (highest == -kInfinity) {
    return error(Code::kInvalidArgument, "none of ", logits.size(),
                 " tokens can be chosen: all are masked; relax logit_bias, min_tokens or the constraint");
  }
  return LogitRange{highest, lowest};
}

std::int32_t argmax(std::span<const float> logits, float highest) {
  return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), highest) - logits.begin());
}

LogitBuckets::LogitBuckets(const LogitRange& range, double span) : highest_(range.highest) {
  const double used = std::min(static_cast<double>(range.highest) - static_cast<double>(range.lowest), span);
  // A span too small to divide by leaves everything below the highest in the last bucket.
  scale_ = used > 0 ? static_cast<double>(kCount) / std::max(used, 1e-30) : 0;
}

std::vector<RankedToken> top_tokens(std::span<const float> logits, const LogitRange& range, std::size_t count) {
  std::vector<RankedToken> top;
  if (count == 0) return top;
  // Models' logits rarely spread further than this; if they do, the last bucket is larger, no more.
  const LogitBuckets buckets(range, 64);
  std::array<std::uint32_t, LogitBuckets::kCount> sizes{};
  for (const float x : logits) {
    if (x > -kInfinity) ++sizes[buckets.of(x)];
  }
  std::size_t last = 0;
  std::size_t total = sizes[0];
  while (total < count && last + 1 < sizes.size()) total += sizes[++last];
  top.reserve(total);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const float x = logits[id];
    if (x > -kInfinity && buckets.of(x) <= last) top.emplace_back(x, id);
  }
  if (top.size() > count) {
    std::nth_element(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(count), top.end());
    top.resize(count);
  }
  std::sort(top.begin(), top.end());
  return top;
}

}  // namespace cadre
