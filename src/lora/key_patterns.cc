#define PCRE2_CODE_UNIT_WIDTH 8
#include "lora/key_patterns.h"

#include <pcre2.h>

#include <algorithm>
#include <chrono>

#include "base/result.h"

namespace cadre {
namespace {

constexpr std::size_t kMaxKeys = 200'000;      // one for each module of the largest per-expert adapters, and to spare
constexpr std::size_t kMaxKeyBytes = 1'000;    // module names have fewer than 200
constexpr std::size_t kMaxRegexes = 256;       // those that are not plain names
constexpr std::size_t kMaxGroups = 1'024;      // plain names: a group for each number of digits in layer and expert
constexpr std::uint32_t kMatchLimit = 50'000;  // steps; `.*` twice over a name of 100 characters takes 5,000
constexpr std::uint32_t kHeapLimitKib = 4'096;
// All names and keys of one file together. An honest file takes milliseconds.
constexpr std::uint64_t kMaxRegexNanoseconds = 5'000'000'000;

bool is_plain(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

std::string regex_error(int code) {
  PCRE2_UCHAR text[128] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

std::string shorten(std::string_view text) {
  constexpr std::size_t kShown = 80;
  return text.size() <= kShown ? std::string(text) : std::string(text.substr(0, kShown)) + "...";
}

}  // namespace

struct KeyPatterns::Regex {
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
    void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  };
  std::size_t index = 0;
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_data, Free> data;
  std::unique_ptr<pcre2_match_context, Free> context;
};

KeyPatterns::KeyPatterns() = default;
KeyPatterns::~KeyPatterns() = default;
KeyPatterns::KeyPatterns(KeyPatterns&&) noexcept = default;
KeyPatterns& KeyPatterns::operator=(KeyPatterns&&) noexcept = default;

Result<KeyPatterns> KeyPatterns::compile(std::vector<std::string> keys, std::string_view where) {
  KeyPatterns p;
  p.where_ = where;
  p.keys_ = std::move(keys);
  if (p.keys_.size() > kMaxKeys) {
    return error(Code::kLimitExceeded, where, " has ", p.keys_.size(), " keys, want at most ", kMaxKeys);
  }
  std::unordered_map<std::string, std::size_t> group_of;  // the key with every letter replaced -> index in groups_
  std::unique_ptr<pcre2_compile_context, Regex::Free> compile_context(pcre2_compile_context_create(nullptr));
  if (!compile_context) return error(Code::kOutOfMemory, where, ": no memory to compile patterns");
  pcre2_set_parens_nest_limit(compile_context.get(), 50);
  for (std::size_t i = 0; i < p.keys_.size(); ++i) {
    const std::string& key = p.keys_[i];
    if (key.size() > kMaxKeyBytes) {
      return error(Code::kLimitExceeded, where, ": key '", shorten(key), "' has ", key.size(), " bytes, want at most ",
                   kMaxKeyBytes);
    }
    p.own_.emplace(key, i);
    if (is_plain(key)) {
      std::string shape = key;
      for (char& c : shape) c = c == '.' ? '.' : 'x';
      const auto [at, added] = group_of.emplace(shape, p.groups_.size());
      if (added) {
        if (p.groups_.size() == kMaxGroups) {
          return error(Code::kLimitExceeded, where, ": keys of more than ", kMaxGroups, " different forms");
        }
        Group& group = p.groups_.emplace_back();
        group.length = key.size();
        for (std::size_t k = 0; k < key.size(); ++k) {
          if (key[k] == '.') group.dots.push_back(k);
        }
      }
      p.groups_[at->second].first.emplace(key, i);
      continue;
    }
    if (p.regexes_.size() == kMaxRegexes) {
      return error(Code::kLimitExceeded, where, " has more than ", kMaxRegexes,
                   " regular expressions; write full module names instead");
    }
    const std::string pattern = "(.*\\.)?(" + key + ")$";
    int code = 0;
    PCRE2_SIZE offset = 0;
    Regex regex;
    regex.index = i;
    regex.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset,
                                   compile_context.get()));
    if (!regex.code) {
      return error(Code::kInvalidFile, where, ": key '", shorten(key),
                   "' is not a regular expression: ", regex_error(code));
    }
    regex.data.reset(pcre2_match_data_create(1, nullptr));
    regex.context.reset(pcre2_match_context_create(nullptr));
    if (!regex.data || !regex.context) return error(Code::kOutOfMemory, where, ": no memory to compile patterns");
    pcre2_set_match_limit(regex.context.get(), kMatchLimit);
    pcre2_set_heap_limit(regex.context.get(), kHeapLimitKib);
    p.regexes_.push_back(std::move(regex));
  }
  return p;
}

Result<std::optional<std::size_t>> KeyPatterns::first_match(std::string_view name) const {
  std::size_t best = keys_.size();
  std::string end;
  for (const Group& group : groups_) {
    if (name.size() < group.length) continue;
    const std::size_t start = name.size() - group.length;
    if (start > 0 && name[start - 1] != '.') continue;
    end.assign(name.substr(start));
    for (const std::size_t dot : group.dots) end[dot] = '.';
    if (const auto at = group.first.find(end); at != group.first.end()) best = std::min(best, at->second);
  }
  if (!regexes_.empty() && regexes_.front().index < best) {
    const auto begin = std::chrono::steady_clock::now();
    for (const Regex& regex : regexes_) {
      if (regex.index > best) break;
      const int found = pcre2_match(regex.code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                    regex.data.get(), regex.context.get());
      if (found >= 0) {
        best = regex.index;
        break;
      }
      if (found != PCRE2_ERROR_NOMATCH) {
        return error(Code::kLimitExceeded, where_, ": key '", shorten(keys_[regex.index]), "' on module '",
                     shorten(name), "': ", regex_error(found), "; write a simpler expression");
      }
    }
    regex_nanoseconds_ += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
    if (regex_nanoseconds_ > kMaxRegexNanoseconds) {
      return error(Code::kLimitExceeded, where_, ": matching takes over ", kMaxRegexNanoseconds / 1'000'000'000,
                   " s; write simpler or fewer expressions");
    }
  }
  if (best < keys_.size()) return std::optional(best);
  if (const auto at = own_.find(name); at != own_.end()) return std::optional(at->second);
  return std::optional<std::size_t>();
}

}  // namespace cadre
