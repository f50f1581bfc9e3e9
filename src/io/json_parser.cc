// Json::parse: a strict recursive-descent parser of RFC 8259, plus what Python writes (JsonParseOptions). Our own
// rather than a library's because the bare words NaN and Infinity, doubles for integers beyond 64 bits, the choice
// about duplicate keys and the paths in messages are all needed, and no parser at hand has them together.
#include <algorithm>
#include <charconv>
#include <limits>

#include "base/result.h"
#include "io/json_data.h"
#include "io/utf8.h"

namespace cadre {

class JsonParser {
 public:
  JsonParser(std::string_view text, std::string_view source, const JsonParseOptions& options)
      : text_(text), options_(options), max_depth_(std::min(options.max_depth, kDeepest)) {
    source_ = std::make_shared<const JsonSource>(JsonSource{std::string(source), options.code});
  }

  Result<Json> run() {
    if (text_.size() > options_.max_bytes) {
      return error(Code::kLimitExceeded, source_->name, ": has ", text_.size(), " bytes of JSON, want at most ",
                   options_.max_bytes);
    }
    Json value;
    skip_space();
    if (!parse_value(value, 0)) return failure();
    skip_space();
    if (at_ != text_.size()) {
      fail(Code::kInvalidFile, found() + " after the end of the JSON value");
      return failure();
    }
    return value;
  }

 private:
  // The parser's and the destructor's recursion stay far from the end of any thread's stack.
  static constexpr int kDeepest = 256;
  // Paths are for messages; without a limit, long keys around many objects would take memory beyond proportion.
  static constexpr std::size_t kLongestPath = 96;

  bool fail(Code code, std::string message) {
    failure_code_ = code;
    failure_ = std::move(message);
    return false;
  }
  bool malformed(std::string message) { return fail(options_.code, std::move(message)); }

  // The error with the place where parsing stopped, as line and column (in bytes), both from 1.
  Status failure() const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    const Code code = failure_code_ == Code::kInvalidFile ? options_.code : failure_code_;
    return error(code, source_->name, ": line ", line, ", column ", at_ - line_start + 1, ": ", failure_);
  }

  // What stands at the current place, for messages.
  std::string found() const {
    if (at_ == text_.size()) return "the end of the text";
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c > 0x20 && c < 0x7f) return {'\'', text_[at_], '\''};
    constexpr char kHex[] = "0123456789abcdef";
    return {'b', 'y', 't', 'e', ' ', '0', 'x', kHex[c >> 4], kHex[c & 15]};
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool peek(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool parse_value(Json& out, int depth) {
    if (++values_ > options_.max_values) {
      return fail(Code::kLimitExceeded, "more than " + std::to_string(options_.max_values) + " values");
    }
    if (at_ == text_.size()) return malformed("the text ends where a value should be");
    switch (text_[at_]) {
      case '{':
        return parse_object(out, depth);
      case '[':
        return parse_array(out, depth);
      case '"': {
        std::string text;
        if (!parse_string(text)) return false;
        out = Json(std::move(text));
        return true;
      }
      case 't':
        if (take_word("true")) return out = Json(true), true;
        break;
      case 'f':
        if (take_word("false")) return out = Json(false), true;
        break;
      case 'n':
        if (take_word("null")) return out = Json(), true;
        break;
      case 'N':
      case 'I':
        return parse_python_word(out);
      case '-':
        if (text_.substr(at_, 2) == "-I") return parse_python_word(out);
        return parse_number(out);
      default:
        if (text_[at_] >= '0' && text_[at_] <= '9') return parse_number(out);
    }
    return malformed(found() + " where a value should be");
  }

  bool parse_python_word(Json& out) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::size_t start = at_;
    if (take_word("NaN")) {
      out = Json(std::numeric_limits<double>::quiet_NaN());
    } else if (take_word("Infinity")) {
      out = Json(kInfinity);
    } else if (take_word("-Infinity")) {
      out = Json(-kInfinity);
    } else {
      return malformed(found() + " where a value should be");
    }
    if (options_.python_numbers) return true;
    const std::string word(text_.substr(start, at_ - start));
    at_ = start;
    return malformed("'" + word + "' is not a JSON value");
  }

  bool skip_digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > start;
  }

  bool parse_number(Json& out) {
    const std::size_t start = at_;
    take('-');
    const std::size_t integer = at_;
    if (!skip_digits()) return malformed(found() + " where a digit should be");
    if (text_[integer] == '0' && at_ - integer > 1) {
      at_ = integer;
      return malformed("a number with a leading zero");
    }
    bool is_integer = true;
    if (take('.')) {
      is_integer = false;
      if (!skip_digits()) return malformed(found() + " where a digit should be");
    }
    if (peek('e') || peek('E')) {
      ++at_;
      is_integer = false;
      if (!take('+')) take('-');
      if (!skip_digits()) return malformed(found() + " where a digit should be");
    }
    const char* first = text_.data() + start;
    const char* last = text_.data() + at_;
    std::int64_t integral = 0;
    if (is_integer && std::from_chars(first, last, integral).ec == std::errc()) {
      out = Json(integral);
      return true;
    }
    double number = 0;
    if (std::from_chars(first, last, number).ec == std::errc::result_out_of_range) {
      number = out_of_range(text_.substr(start, at_ - start));
    }
    out = Json(number);
    return true;
  }

  // from_chars does not say whether a number is too large or too small for a double: as Python, infinity or zero.
  static double out_of_range(std::string_view number) {
    const bool negative = number.front() == '-';
    if (negative) number.remove_prefix(1);
    const std::size_t e = std::min(number.find_first_of("eE"), number.size());
    const std::string_view digits = number.substr(0, e);
    std::int64_t exponent = 0;
    if (e < number.size()) {
      std::string_view written = number.substr(e + 1);
      const bool down = written.front() == '-';
      if (down || written.front() == '+') written.remove_prefix(1);
      constexpr std::int64_t kHuge = std::int64_t{1} << 62;
      if (std::from_chars(written.data(), written.data() + written.size(), exponent).ec != std::errc())
        exponent = kHuge;
      exponent = std::min(exponent, kHuge);
      if (down) exponent = -exponent;
    }
    // The power of ten of the first digit that is not zero.
    const std::size_t point = std::min(digits.find('.'), digits.size());
    const std::size_t leading = std::min(digits.find_first_of("123456789"), digits.size());
    exponent += static_cast<std::int64_t>(point) - static_cast<std::int64_t>(leading);
    const double magnitude = exponent > 0 ? std::numeric_limits<double>::infinity() : 0.0;
    return negative ? -magnitude : magnitude;
  }

  bool parse_hex4(unsigned& code) {
    code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || parsed.ec != std::errc() || parsed.ptr != digits.data() + 4) {
      return malformed("'\\u' without four hexadecimal digits");
    }
    at_ += 4;
    return true;
  }

  static void append_utf8(unsigned c, std::string& out) {
    const auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | (c >> 6));
      put(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      put(0xe0 | (c >> 12));
      put(0x80 | ((c >> 6) & 0x3f));
      put(0x80 | (c & 0x3f));
    } else {
      put(0xf0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3f));
      put(0x80 | ((c >> 6) & 0x3f));
      put(0x80 | (c & 0x3f));
    }
  }

  bool parse_escape(std::string& out) {
    if (at_ == text_.size()) return malformed("the text ends inside a string");
    const char c = text_[at_++];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return true;
      case 'b':
        out += '\b';
        return true;
      case 'f':
        out += '\f';
        return true;
      case 'n':
        out += '\n';
        return true;
      case 'r':
        out += '\r';
        return true;
      case 't':
        out += '\t';
        return true;
      case 'u':
        break;
      default:
        --at_;
        return malformed(found() + " after a backslash in a string");
    }
    unsigned code = 0;
    if (!parse_hex4(code)) return false;
    if (code >= 0xd800 && code < 0xe000) {
      unsigned low = 0;
      if (code >= 0xdc00 || !take_word("\\u")) return malformed("half of a surrogate pair in a string");
      if (!parse_hex4(low)) return false;
      if (low < 0xdc00 || low > 0xdfff) return malformed("half of a surrogate pair in a string");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(code, out);
    return true;
  }

  bool parse_string(std::string& out) {
    ++at_;  // the quote
    while (true) {
      const std::size_t start = at_;
      while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) >= 0x20 && text_[at_] != '"' &&
             text_[at_] != '\\') {
        const std::size_t bytes = utf8_char_bytes(text_.substr(at_));
        if (bytes == 0) return malformed(found() + " in a string is not UTF-8");
        at_ += bytes;
      }
      out.append(text_.substr(start, at_ - start));
      if (at_ == text_.size()) return malformed("the text ends inside a string");
      if (take('"')) return true;
      if (!take('\\')) return malformed(found() + " in a string, want it escaped");
      if (!parse_escape(out)) return false;
    }
  }

  bool enter(int depth) {
    if (depth < max_depth_) return ++at_, true;
    return fail(Code::kLimitExceeded, "arrays and objects nested more than " + std::to_string(max_depth_) + " deep");
  }

  bool parse_array(Json& out, int depth) {
    if (!enter(depth)) return false;
    std::vector<Json> items;
    skip_space();
    if (!take(']')) {
      const std::size_t path_size = path_.size();
      do {
        skip_space();
        Json& item = items.emplace_back();
        if (peek('{') || peek('[')) extend_path('[' + std::to_string(items.size() - 1) + ']');
        if (!parse_value(item, depth + 1)) return false;
        path_.resize(path_size);
        skip_space();
      } while (take(','));
      if (!take(']')) return malformed(found() + " in an array, want ',' or ']'");
    }
    items.shrink_to_fit();
    out = Json::array(std::move(items));
    return true;
  }

  bool parse_object(Json& out, int depth) {
    const std::size_t start = at_;
    if (!enter(depth)) return false;
    auto data = std::make_shared<Json::Object>();
    data->source = source_;
    data->path = path_;
    skip_space();
    if (!take('}')) {
      const std::size_t path_size = path_.size();
      do {
        skip_space();
        if (!peek('"')) return malformed(found() + " in an object, want a key in double quotes");
        Json::Member& member = data->members.emplace_back();
        if (!parse_string(member.first)) return false;
        skip_space();
        if (!take(':')) return malformed(found() + " after a key, want ':'");
        skip_space();
        if (peek('{') || peek('[')) extend_path((path_.empty() ? "" : ".") + member.first);
        if (!parse_value(member.second, depth + 1)) return false;
        path_.resize(path_size);
        skip_space();
      } while (take(','));
      if (!take('}')) return malformed(found() + " in an object, want ',' or '}'");
    }
    data->members.shrink_to_fit();
    std::string duplicate;
    if (data->index(&duplicate) && options_.duplicates == JsonParseOptions::Duplicates::kRefuse) {
      at_ = start;
      return malformed("the object that starts here has the key " + Json(duplicate).dump() + " twice");
    }
    if (options_.python_numbers && python_float(*data, out)) return true;
    out.value_ = std::shared_ptr<const Json::Object>(std::move(data));
    return true;
  }

  static bool python_float(const Json::Object& object, Json& out) {
    if (object.members.size() != 1 || object.members[0].first != "__float__") return false;
    const std::string* name = std::get_if<std::string>(&object.members[0].second.value_);
    if (name == nullptr) return false;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (*name == "NaN") return out = Json(std::numeric_limits<double>::quiet_NaN()), true;
    if (*name == "Infinity") return out = Json(kInfinity), true;
    if (*name == "-Infinity") return out = Json(-kInfinity), true;
    return false;
  }

  // Callers cut the path back to its earlier size.
  void extend_path(std::string_view piece) {
    constexpr std::string_view kMore = "...";
    if (path_.size() + piece.size() <= kLongestPath) {
      path_ += piece;
    } else if (!std::string_view(path_).ends_with(kMore)) {
      path_ += kMore;
    }
  }

  std::string_view text_;
  const JsonParseOptions& options_;
  int max_depth_;
  std::shared_ptr<const JsonSource> source_;
  std::size_t at_ = 0;
  std::uint64_t values_ = 0;
  std::string path_;
  Code failure_code_ = Code::kOk;
  std::string failure_;
};

Result<Json> Json::parse(std::string_view text, std::string_view source, const JsonParseOptions& options) {
  return JsonParser(text, source, options).run();
}

}  // namespace cadre
