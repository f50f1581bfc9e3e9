// The regular expressions of tokenizer.json, which are written for Oniguruma (Ruby syntax), run by PCRE2.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::text {

struct Span {
  std::uint32_t begin;
  std::uint32_t end;
};

// Rewrites what the two engines read differently (\s, \w, \h, (?m), ...), and refuses what cannot be rewritten.
Result<std::string> translate_pattern(std::string_view pattern);

// Memory for matching, one for each thread at work, and the time that all matching since start() may take: a pattern
// from a hostile file can be made to need any amount.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  void start(std::size_t text_bytes);

  struct Impl;
  std::unique_ptr<Impl> impl;
};

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);
  // Matches `text` literally.
  static Result<Regex> literal(std::string_view text);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Appends every match in `subject` (valid UTF-8), from left to right, none overlapping, offset by `base`. An empty
  // match is none where the match before it ended.
  Status find_all(std::string_view subject, std::uint32_t base, RegexScratch& scratch, std::vector<Span>& out) const;

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cadre::text
