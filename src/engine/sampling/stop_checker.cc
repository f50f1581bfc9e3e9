#include "engine/sampling/stop_checker.h"

#include <algorithm>
#include <utility>

namespace cadre {
namespace {

std::vector<std::size_t> failure_function(const std::string& text) {
  std::vector<std::size_t> failure(text.size() + 1, 0);
  std::size_t matched = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (matched > 0 && text[i] != text[matched]) matched = failure[matched];
    if (text[i] == text[matched]) ++matched;
    failure[i + 1] = matched;
  }
  return failure;
}

}  // namespace

StopChecker::StopChecker(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;  // would match everywhere
    std::vector<std::size_t> failure = failure_function(stop);
    patterns_.push_back({std::move(stop), std::move(failure)});
  }
}

const StopChecker::Pattern* StopChecker::advance(char byte) {
  const Pattern* complete = nullptr;
  for (Pattern& pattern : patterns_) {
    std::size_t matched = pattern.matched;
    // A complete match was passed over: go on from what its tail begins.
    if (matched == pattern.text.size()) matched = pattern.failure[matched];
    while (matched > 0 && byte != pattern.text[matched]) matched = pattern.failure[matched];
    if (byte == pattern.text[matched]) ++matched;
    pattern.matched = matched;
    if (matched == pattern.text.size() && (complete == nullptr || matched > complete->text.size())) complete = &pattern;
  }
  return complete;
}

std::string StopChecker::feed(std::string_view piece, bool may_stop) {
  if (stopped_) return {};
  for (const char byte : piece) {
    held_ += byte;
    const Pattern* complete = advance(byte);
    if (complete == nullptr || !may_stop) continue;
    stopped_ = true;
    matched_ = complete->text;
    if (!include_stop_) held_.resize(held_.size() - matched_.size());
    return std::exchange(held_, {});
  }
  std::size_t tail = 0;
  for (const Pattern& pattern : patterns_) {
    const bool passed_over = pattern.matched == pattern.text.size();
    tail = std::max(tail, passed_over ? pattern.failure[pattern.matched] : pattern.matched);
  }
  std::string emitted = held_.substr(0, held_.size() - tail);
  held_.erase(0, emitted.size());
  return emitted;
}

std::string StopChecker::flush() { return std::exchange(held_, {}); }

}  // namespace cadre
