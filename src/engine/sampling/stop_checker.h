// Stop strings over text that arrives in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cadre {

// Finds the first stop string that text completes, wherever the borders of its pieces fall, and holds back what may
// still become one. The result is the same for every way to cut the text: the match that ends first wins, and of those
// that end together the longest. Text ends before the match, or after it with include_stop.
//
// Stop strings are valid UTF-8 and not empty (validate); then text that is cut or held back is so between characters,
// as far as the pieces themselves are.
class StopChecker {
 public:
  explicit StopChecker(std::vector<std::string> stops, bool include_stop = false);

  // Takes the next piece and returns the text that may be emitted now: everything up to the longest tail that begins a
  // stop string. With `may_stop` false (fewer than min_tokens tokens) a match is passed over. After a match: nothing.
  std::string feed(std::string_view piece, bool may_stop = true);
  // At the end of generation: what was held back.
  std::string flush();

  bool stopped() const { return stopped_; }
  // The stop string that matched; empty if none did.
  const std::string& matched() const { return matched_; }

 private:
  // A stop string and how much of it the text's tail matches, by the failure function of Knuth, Morris and Pratt: a
  // byte costs a step for each string, whatever their lengths.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> failure;  // by matched length: the longest shorter tail that is also a prefix
    std::size_t matched = 0;
  };
  // Advances all patterns by one byte; returns the longest that is now complete, or nullptr.
  const Pattern* advance(char byte);

  std::vector<Pattern> patterns_;
  bool include_stop_;
  bool stopped_ = false;
  std::string held_;
  std::string matched_;
};

}  // namespace cadre
