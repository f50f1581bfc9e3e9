#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/result.h"
#include "text/tokenizer/regex.h"

namespace cadre::text {
namespace {

// Unicode White_Space, inside a class. PCRE2's own \s has U+180E besides.
constexpr std::string_view kSpace =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
// Oniguruma counts the superscripts and fractions of Latin-1 as word characters, and no others.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHex = "0-9A-Fa-f";

constexpr std::size_t kMaxPropertyName = 40;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether PCRE2 knows \\p{sc:name}. Its plain \\p{name} of a script takes in characters that several scripts share.
bool is_script(std::string_view name) {
  if (name.size() < 3) return false;  // a general category
  const std::string pattern = "\\p{sc:" + std::string(name) + "}";
  int number = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &number, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        CADRE_TRY(escape(/*in_class=*/false));
      } else if (c == '[') {
        CADRE_TRY(char_class());
      } else if (c == '(' && rest().substr(0, 2) == "(?") {
        CADRE_TRY(group());
      } else if (c == '{') {
        CADRE_TRY(braces());
      } else {
        take(1);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return in_.substr(pos_); }
  void take(std::size_t count) {
    out_ += in_.substr(pos_, count);
    pos_ += count;
  }
  Status refuse(std::string_view what) const {
    return error(Code::kUnsupported, "pattern '", in_.substr(0, 200), "' has ", what, " at byte ", pos_,
                 ", which is not supported");
  }

  // pos_ is at a backslash.
  Status escape(bool in_class) {
    if (pos_ + 1 >= in_.size()) return error(Code::kInvalidFile, "pattern '", in_.substr(0, 200), "' ends with '\\'");
    auto put = [&](std::string_view open, std::string_view body) {
      if (!in_class) out_ += open;
      out_ += body;
      if (!in_class) out_ += ']';
      pos_ += 2;
    };
    switch (in_[pos_ + 1]) {
      case 's':
        put("[", kSpace);
        return {};
      case 'S':
        put("[", kNotSpace);
        return {};
      case 'w':
        put("[", kWord);
        return {};
      case 'h':
        put("[", kHex);
        return {};
      case 'W':
        if (in_class) return refuse("\\W inside a class");
        put("[^", kWord);
        return {};
      case 'H':
        if (in_class) return refuse("\\H inside a class");
        put("[^", kHex);
        return {};
      case 'u': {
        const std::string_view digits = in_.substr(pos_ + 2).substr(0, 4);
        if (digits.size() != 4) return refuse("\\u without four hexadecimal digits");
        for (char digit : digits) {
          if (!is_hex(digit)) return refuse("\\u without four hexadecimal digits");
        }
        out_ += "\\x{";
        out_ += digits;
        out_ += '}';
        pos_ += 6;
        return {};
      }
      case 'b':
      case 'B':
        if (in_class) break;               // a backspace in both
        return refuse("a word boundary");  // \b of the two engines disagrees about marks
      case 'p':
      case 'P': {
        const std::size_t end = in_.find('}', pos_);
        if (in_.substr(pos_ + 2).substr(0, 1) != "{" || end == in_.npos) break;
        std::string_view name = in_.substr(pos_ + 3, end - pos_ - 3);
        const bool negated = name.starts_with('^');
        if (negated) name.remove_prefix(1);
        if (name.size() > kMaxPropertyName || !is_script(name)) break;
        out_ += in_.substr(pos_, 2);
        out_ += negated ? "{^sc:" : "{sc:";
        out_ += name;
        out_ += '}';
        pos_ = end + 1;
        return {};
      }
      case 'Q':
      case 'E':
      case 'C':
      case 'G':
      case 'g':
      case 'k':
      case 'y':
      case 'Y':
      case 'O':
      case 'M':
        return refuse(in_.substr(pos_, 2));
      default:
        break;
    }
    take(2);
    return {};
  }

  // pos_ is at an opening bracket.
  Status char_class() {
    const std::size_t begin = out_.size();
    take(1);
    if (pos_ < in_.size() && in_[pos_] == '^') take(1);
    bool first = true;
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == ']' && !first) {
        take(1);
        return {};
      }
      first = false;
      if (c == '\\') {
        CADRE_TRY(escape(/*in_class=*/true));
      } else if (rest().substr(0, 2) == "[:") {
        const auto end = rest().find(":]");
        if (end == std::string_view::npos) return refuse("an unfinished [: in a class");
        const std::string_view name = rest().substr(2, end - 2);
        if (name == "space") {
          out_ += kSpace;
          pos_ += end + 2;
        } else if (name == "word") {
          out_ += kWord;
          pos_ += end + 2;
        } else if (name == "^space") {
          out_ += kNotSpace;
          pos_ += end + 2;
        } else {
          take(end + 2);
        }
      } else if (c == '[') {
        return refuse("a class inside a class");
      } else if (rest().substr(0, 2) == "&&") {
        return intersection(begin);
      } else {
        take(1);
      }
    }
    return error(Code::kInvalidFile, "pattern '", in_.substr(0, 200), "' has a class without an end");
  }

  // pos_ is at the && of a class that began at out_[begin]. [X&&[Y]], with Y negated or not, is all that files use;
  // PCRE2 says it as "the next character is of Y, and of X".
  Status intersection(std::size_t begin) {
    const std::string first = out_.substr(begin) + "]";
    if (first.starts_with("[^") || rest().substr(0, 3) != "&&[") return refuse("an intersection of classes");
    out_.resize(begin);
    out_ += "(?:(?=";
    pos_ += 2;
    CADRE_TRY(char_class());
    if (rest().substr(0, 1) != "]") return refuse("an intersection of classes");
    ++pos_;
    out_ += ")" + first + ")";
    return {};
  }

  // pos_ is at "(?": options, where m means that a dot matches a newline.
  Status group() {
    take(2);
    while (pos_ < in_.size() && (in_[pos_] == '-' || (in_[pos_] >= 'a' && in_[pos_] <= 'z'))) {
      const char c = in_[pos_];
      if (c != 'i' && c != 'm' && c != 'x' && c != '-') return refuse("an unknown option");
      out_ += c == 'm' ? 's' : c;
      ++pos_;
    }
    if (pos_ < in_.size() && in_[pos_] == 'P') return refuse("(?P");
    return {};
  }

  // pos_ is at an opening brace, perhaps an interval.
  Status braces() {
    std::size_t end = pos_ + 1;
    const bool from_zero = end < in_.size() && in_[end] == ',';
    std::size_t digits = 0;
    while (end < in_.size() && (is_digit(in_[end]) || in_[end] == ',')) digits += is_digit(in_[end++]) ? 1 : 0;
    if (digits == 0 || end >= in_.size() || in_[end] != '}') {
      take(1);
      return {};
    }
    // {1,3}+ is possessive in PCRE2 and a repeated {1,3} in Ruby.
    if (end + 1 < in_.size() && in_[end + 1] == '+') return refuse("a '+' after an interval");
    if (from_zero) {
      out_ += "{0";
      ++pos_;
    }
    take(end + 1 - pos_);
    return {};
  }

  std::string_view in_;
  std::size_t pos_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace cadre::text
