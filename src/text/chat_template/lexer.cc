#include "text/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/result.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

constexpr std::size_t kMaxTokens = 1'000'000;

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// One line end for all, and without the last one.
std::string normalize_newlines(std::string_view source, bool drop_last) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (drop_last && !out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      CADRE_TRY(text_then_tag());
      if (tokens_.size() > kMaxTokens) return syntax_error(line_, "the template has too many parts");
    }
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  bool here(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  void advance(std::size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }

  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    advance(rest.size() - strip_left(rest).size());
  }

  // Where the next {{, {% or {# stands.
  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return source_.size();
  }

  // The text before a tag, with what the tag's sign and lstrip_blocks take away.
  std::string_view trimmed(std::string_view text, char sign, bool strip_line_start) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || !strip_line_start) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if (start == 0 && !line_starting_) return text;
    return strip_left(text.substr(start)).empty() ? text.substr(0, start) : text;
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  Status text_then_tag() {
    const std::size_t tag = next_tag();
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (tag == source_.size()) {
      add(TokenKind::kText, std::string(text));
      at_ = tag;
      return {};
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::string_view kept = trimmed(text, sign, kind != '{');
    if (!kept.empty()) add(TokenKind::kText, std::string(kept));
    advance(tag - at_);
    if (kind == '#') return comment();
    if (kind == '%') {
      if (const std::size_t end = raw_tag_end(at_, "raw", /*trims_newline=*/false); end != 0) return raw_block(end);
    }
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin);
    advance(sign == '\0' ? 2 : 3);
    return inside_tag(kind == '%');
  }

  // After the end of a block or comment: trim_blocks takes one newline, '-' all white space, '+' nothing.
  void after_tag(char sign) {
    const std::size_t before = at_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && here("\n")) {
      advance(1);
    }
    line_starting_ = at_ > before && source_[at_ - 1] == '\n';
  }

  Status comment() {
    const std::size_t start = at_ + (sign_at(at_ + 2) == '\0' ? 2 : 3);
    const std::size_t end = source_.find("#}", start);
    if (end == std::string::npos) return syntax_error(line_, "a comment '{#' is not closed by '#}'");
    const char sign = end > start ? sign_at(end - 1) : '\0';
    advance(end + 2 - at_);
    after_tag(sign);
    return {};
  }

  // The end of `{% word %}` at `at`, or 0 where there is none.
  std::size_t raw_tag_end(std::size_t at, std::string_view word, bool trims_newline) const {
    const std::string_view all = source_;
    at += 2;
    if (sign_at(at) != '\0') ++at;
    at = all.size() - strip_left(all.substr(at)).size();
    if (!all.substr(at).starts_with(word)) return 0;
    at += word.size();
    at = all.size() - strip_left(all.substr(at)).size();
    if (all.substr(at).starts_with("-%}")) return all.size() - strip_left(all.substr(at + 3)).size();
    if (trims_newline && all.substr(at).starts_with("+%}")) return at + 3;
    if (!all.substr(at).starts_with("%}")) return 0;
    at += 2;
    return trims_newline && at < all.size() && all[at] == '\n' ? at + 1 : at;
  }

  Status raw_block(std::size_t start) {
    const int begin_line = line_;
    line_starting_ = source_[start - 1] == '\n';
    advance(start - at_);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const std::size_t end = raw_tag_end(tag, "endraw", /*trims_newline=*/true);
      if (end == 0) continue;
      const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
      const std::string_view kept = trimmed(text, sign_at(tag + 2), true);
      if (!kept.empty()) add(TokenKind::kText, std::string(kept));
      advance(end - at_);
      line_starting_ = source_[end - 1] == '\n';
      return {};
    }
    return syntax_error(begin_line, "a raw block is not closed by '{% endraw %}'");
  }

  Status inside_tag(bool block) {
    const int begin_line = line_;
    const std::string_view close = block ? "%}" : "}}";
    std::vector<char> open;  // brackets; a tag cannot end inside one
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) break;
      if (open.empty()) {
        const char sign = sign_at(at_);
        const bool signed_end = sign != '\0' && (block || sign == '-') && source_.compare(at_ + 1, 2, close) == 0;
        if (signed_end || here(close)) {
          add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd);
          advance(signed_end ? 3 : 2);
          if (block) {
            after_tag(signed_end ? sign : '\0');
          } else {
            const std::size_t before = at_;
            if (signed_end) skip_space();
            line_starting_ = at_ > before && source_[at_ - 1] == '\n';
          }
          return {};
        }
      }
      CADRE_TRY(token(open));
    }
    return syntax_error(begin_line, block ? "a block '{%' is not closed by '%}'" : "'{{' is not closed by '}}'");
  }

  Status token(std::vector<char>& open) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return string();
    if (is_ascii_digit(c)) return number();
    const std::string_view rest = std::string_view(source_).substr(at_);
    std::size_t n = 0;
    while (n < rest.size() && is_word(code_point_at(rest, n))) n += code_point_size(rest, n);
    if (n > 0) {
      add(TokenKind::kName, std::string(rest.substr(0, n)));
      advance(n);
      return {};
    }
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (std::string_view op : kOperators) {
      if (!rest.starts_with(op)) continue;
      if (c == '(' || c == '[' || c == '{') {
        open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) return syntax_error(line_, std::string("unexpected '") + c + "'");
        open.pop_back();
      }
      add(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return {};
    }
    return syntax_error(line_, "unexpected character '" + std::string(rest.substr(0, code_point_size(rest, 0))) + "'");
  }

  Status number() {
    std::size_t end = at_;
    int base = 10;
    bool real = false;
    const auto digits = [&](auto&& is_one) {
      while (end < source_.size() && (is_one(source_[end]) || source_[end] == '_')) ++end;
    };
    const char kind = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
      end += 2;
      digits([&](char c) {
        const char lower = static_cast<char>(c | 0x20);
        return base == 16 ? is_ascii_digit(c) || (lower >= 'a' && lower <= 'f') : c >= '0' && c < '0' + base;
      });
    } else {
      digits(is_ascii_digit);
      // "1.foo" is a look-up into the number, not a fraction.
      if (end + 1 < source_.size() && source_[end] == '.' && is_ascii_digit(source_[end + 1]) && !after_dot()) {
        real = true;
        ++end;
        digits(is_ascii_digit);
      }
      std::size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e' && !after_dot()) {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_ascii_digit(source_[exponent])) {
          real = true;
          end = exponent;
          digits(is_ascii_digit);
        }
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? TokenKind::kReal : TokenKind::kInteger, text);
    const char* first = text.data() + (base == 10 ? 0 : 2);
    const char* last = text.data() + text.size();
    const auto parsed = real ? std::from_chars(first, last, tokens_.back().real)
                             : std::from_chars(first, last, tokens_.back().integer, base);
    if (parsed.ec != std::errc() || parsed.ptr != last) {
      return syntax_error(line_, "the number '" + text + "' is malformed or out of range");
    }
    advance(end - at_);
    return {};
  }

  // Whether the number follows a dot, as the second one of "x.0.1".
  bool after_dot() const { return at_ > 0 && source_[at_ - 1] == '.'; }

  Status string() {
    const char quote = source_[at_];
    std::string text;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        text += source_[i];
      } else {
        ++i;
        if (!escape(i, text)) return syntax_error(line_, "a string holds a malformed escape");
      }
    }
    if (i >= source_.size()) return syntax_error(line_, "a string is not closed");
    add(TokenKind::kString, std::move(text));
    advance(i + 1 - at_);
    return {};
  }

  // The escape whose letter stands at `i`, which moves to its last character.
  bool escape(std::size_t& i, std::string& out) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[i];
    if (c == '\n') return true;  // the line goes on
    if (const std::size_t at = kLetters.find(c); at != std::string_view::npos) {
      out += kMeaning[at];
      return true;
    }
    if (c >= '0' && c <= '7') {
      const std::size_t first = i;
      unsigned code = 0;
      while (i < source_.size() && i < first + 3 && source_[i] >= '0' && source_[i] <= '7') {
        code = code * 8 + static_cast<unsigned>(source_[i++] - '0');
      }
      --i;
      append_code_point(out, code);
      return true;
    }
    const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n == 0) {
      if (c == 'N') return false;  // \N{name} needs a table of names that is not here
      out += '\\';
      out += c;
      return true;
    }
    std::uint32_t code = 0;
    const char* first = source_.data() + i + 1;
    if (i + n >= source_.size()) return false;
    const auto parsed = std::from_chars(first, first + n, code, 16);
    if (parsed.ec != std::errc() || parsed.ptr != first + n) return false;
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    append_code_point(out, code);
    i += n;
    return true;
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> lex(std::string_view source) {
  return Lexer(normalize_newlines(source, /*drop_last=*/true)).run();
}

Status syntax_error(int line, std::string_view what) { return error(Code::kInvalidFile, "line ", line, ": ", what); }

}  // namespace cadre::chat_template
