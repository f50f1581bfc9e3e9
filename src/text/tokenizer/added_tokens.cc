#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/result.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {

Result<AddedToken> AddedToken::from_json(const JsonValue& json) {
  AddedToken token;
  CADRE_ASSIGN(const std::string_view content, json.need_string("content"));
  CADRE_TRY(json.need("id").status());
  CADRE_ASSIGN(const std::int64_t id, json.integer_or("id", -1));
  if (id < 0 || id > INT32_MAX) return error(Code::kInvalidFile, json.path, ".id: ", id, " is no token id");
  token.id = static_cast<std::int32_t>(id);
  CADRE_ASSIGN(token.special, json.bool_or("special", false));
  CADRE_ASSIGN(token.normalized, json.bool_or("normalized", !token.special));
  CADRE_ASSIGN(token.lstrip, json.bool_or("lstrip", false));
  CADRE_ASSIGN(token.rstrip, json.bool_or("rstrip", false));
  CADRE_ASSIGN(token.single_word, json.bool_or("single_word", false));
  token.content = content;
  if (content.size() > TokenFinder::kMaxBytes) {
    return error(Code::kLimitExceeded, json.path, ".content: has ", content.size(), " bytes, the limit is ",
                 TokenFinder::kMaxBytes);
  }
  return token;
}

Status TokenFinder::add(std::string pattern, const AddedToken& token) {
  if (pattern.empty()) return {};
  if (pattern.size() > kMaxBytes) {
    return error(Code::kLimitExceeded, "added token ", token.id, " is ", pattern.size(),
                 " bytes long once normalized, the limit is ", kMaxBytes);
  }
  entries_.push_back({std::move(pattern), token.id, token.lstrip, token.rstrip, token.single_word, entries_.size()});
  return {};
}

void TokenFinder::finish() {
  // Of equal patterns the one added first counts.
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.pattern != b.pattern ? a.pattern < b.pattern : a.order < b.order;
  });
  entries_.erase(std::unique(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.pattern == b.pattern; }),
                 entries_.end());
  first_.fill(0);
  for (const Entry& entry : entries_) ++first_[static_cast<unsigned char>(entry.pattern[0]) + 1U];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

const TokenFinder::Entry* TokenFinder::longest_at(std::string_view text, std::size_t pos) const {
  const auto byte = [](char c) { return static_cast<unsigned char>(c); };
  std::uint32_t low = first_[byte(text[pos])];
  std::uint32_t high = first_[byte(text[pos]) + 1U];
  const Entry* best = nullptr;
  // Entries low to high agree with the text in their first `depth` bytes; the shortest of them sorts first.
  for (std::size_t depth = 1; low < high; ++depth) {
    if (entries_[low].pattern.size() == depth) best = &entries_[low++];
    if (pos + depth >= text.size() || low == high) break;
    const unsigned char want = byte(text[pos + depth]);
    const auto begin = entries_.begin();
    const auto range_begin =
        std::partition_point(begin + low, begin + high, [&](const Entry& e) { return byte(e.pattern[depth]) < want; });
    const auto range_end =
        std::partition_point(range_begin, begin + high, [&](const Entry& e) { return byte(e.pattern[depth]) == want; });
    low = static_cast<std::uint32_t>(range_begin - begin);
    high = static_cast<std::uint32_t>(range_end - begin);
  }
  return best;
}

void TokenFinder::split(std::string_view text, std::vector<Segment>& out) const {
  std::size_t done = 0;
  for (std::size_t pos = 0; !entries_.empty() && pos < text.size();) {
    const auto lead = static_cast<unsigned char>(text[pos]);
    if (first_[lead] == first_[lead + 1U]) {
      ++pos;
      continue;
    }
    const Entry* entry = longest_at(text, pos);
    if (entry == nullptr) {
      ++pos;
      continue;
    }
    std::size_t begin = pos;
    std::size_t end = pos + entry->pattern.size();
    pos = end;
    if (entry->single_word) {
      std::size_t before = begin;
      std::size_t after = end;
      if (begin > 0 && is_word(previous_code_point(text, before))) continue;
      if (end < text.size() && is_word(next_code_point(text, after))) continue;
    }
    if (entry->lstrip) {
      while (begin > done) {
        std::size_t before = begin;
        if (!is_whitespace(previous_code_point(text, before))) break;
        begin = before;
      }
    }
    if (entry->rstrip) {
      while (end < text.size()) {
        std::size_t after = end;
        if (!is_whitespace(next_code_point(text, after))) break;
        end = after;
      }
    }
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, entry->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace cadre::text
