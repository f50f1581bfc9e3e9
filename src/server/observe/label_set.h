// A bounded set of label values: the first so many keep their names, all later ones are "other". Prometheus keeps a
// time series for every value it has ever seen, so whoever could choose values freely could fill its memory and ours.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace cadre::server {

class LabelSet {
 public:
  explicit LabelSet(std::size_t most) : most_(most) {}

  std::string value(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (const auto at = names_.find(name); at != names_.end()) return *at;
    if (names_.size() >= most_) return "other";
    return *names_.emplace(name).first;
  }

 private:
  const std::size_t most_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace cadre::server
