#include "text/tokenizer/pattern.h"

#include "base/result.h"

namespace cadre::text {

Result<Regex> pattern_from_json(const JsonValue& json) {
  CADRE_ASSIGN(const JsonValue* pattern, json.need("pattern"));
  if (!pattern->is_object()) {
    return error(Code::kInvalidFile, pattern->path, ": expected an object with 'String' or 'Regex', got ",
                 pattern->kind_name());
  }
  if (pattern->get("Regex") != nullptr) {
    CADRE_ASSIGN(const std::string_view text, pattern->need_string("Regex"));
    return Regex::compile(text).with_context(pattern->path);
  }
  CADRE_ASSIGN(const std::string_view text, pattern->need_string("String"));
  return Regex::literal(text).with_context(pattern->path);
}

Result<std::string> replace_all(const Regex& regex, std::string_view text, std::string_view content, std::size_t limit,
                                RegexScratch& scratch) {
  std::vector<Span> matches;
  CADRE_TRY(regex.find_all(text, 0, scratch, matches));
  if (text.size() + matches.size() * content.size() > limit) {
    return error(Code::kLimitExceeded, "replacing makes a text of ", text.size(), " bytes longer than ", limit);
  }
  std::string out;
  out.reserve(text.size() + matches.size() * content.size());
  std::size_t done = 0;
  for (const Span& match : matches) {
    out += text.substr(done, match.begin - done);
    out += content;
    done = match.end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace cadre::text
