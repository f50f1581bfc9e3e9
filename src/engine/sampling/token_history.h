// Which tokens a sequence has seen: what the penalties and min_tokens depend on.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

namespace cadre {

// Counts by token, so that a step costs the distinct tokens seen and not the length. Not thread-safe while it is added
// to; may be read by several threads.
class TokenHistory {
 public:
  struct Counts {
    bool in_prompt = false;
    std::uint32_t generated = 0;
  };

  void add_prompt(std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) counts_[id].in_prompt = true;
  }
  void add_generated(std::int32_t id) {
    ++counts_[id].generated;
    ++generated_;
  }

  const std::unordered_map<std::int32_t, Counts>& counts() const { return counts_; }
  std::uint64_t generated() const { return generated_; }  // tokens of output so far

 private:
  std::unordered_map<std::int32_t, Counts> counts_;
  std::uint64_t generated_ = 0;
};

}  // namespace cadre
