// The keys of rank_pattern and alpha_pattern, matched against module names as PEFT does: each key is a regular
// expression, anchored as `(.*\.)?(KEY)$` at the start of the name, and the first key in the file's order that matches
// wins.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cadre {

// Not for several threads at once.
class KeyPatterns {
 public:
  // `where` names the field in messages. Refuses what does not compile and what could cost too much.
  static Result<KeyPatterns> compile(std::vector<std::string> keys, std::string_view where);

  KeyPatterns();
  ~KeyPatterns();
  KeyPatterns(KeyPatterns&&) noexcept;
  KeyPatterns& operator=(KeyPatterns&&) noexcept;

  // The index of the first key that matches `name`. An error if a pattern takes too many steps on it.
  Result<std::optional<std::size_t>> first_match(std::string_view name) const;

  const std::vector<std::string>& keys() const { return keys_; }

 private:
  struct Regex;

  // Most keys hold no special character but the dots between a module's parts, which match any character. Such keys
  // are grouped by length and positions of their dots: a name's end, with those positions dotted, is one look-up in
  // each group. Tools that choose a rank for each module write tens of thousands of them.
  struct Group {
    std::size_t length = 0;
    std::vector<std::size_t> dots;
    std::unordered_map<std::string, std::size_t> first;  // key -> its index
  };

  std::string where_;
  std::vector<std::string> keys_;
  std::vector<Group> groups_;
  std::vector<Regex> regexes_;                             // in order of their index
  std::unordered_map<std::string_view, std::size_t> own_;  // PEFT's last resort: the name itself is a key
  mutable std::uint64_t regex_nanoseconds_ = 0;
};

}  // namespace cadre
