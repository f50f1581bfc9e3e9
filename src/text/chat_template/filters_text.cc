#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/chat_template/filters.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

// Python's int(text, base), where it can: white space around, a sign, underscores between digits.
std::optional<std::int64_t> parse_int(std::string_view text, int base) {
  text = strip_right(strip_left(text));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      text.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  std::string digits = negative ? "-" : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') return std::nullopt;
    } else if (text[i] == '-') {
      return std::nullopt;
    } else {
      digits += text[i];
    }
  }
  std::int64_t out = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return out;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip_right(strip_left(text));
  if (!text.empty() && text[0] == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text[0] == '-') return std::nullopt;
  }
  std::string digits(text);
  std::erase(digits, '_');
  double out = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (parsed.ptr != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    const double size = digits.find("e-") == std::string::npos && digits.find("E-") == std::string::npos ? HUGE_VAL : 0;
    return digits[0] == '-' ? -size : size;
  }
  if (parsed.ec != std::errc()) return std::nullopt;
  return out;
}

std::optional<std::int64_t> truncate_real(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Result<Value> map_text(Runtime& runtime, const Value& self, const Args& args, std::string_view name,
                       std::string (*change)(std::string_view)) {
  CADRE_TRY(bind(args, name, {}).status());
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  CADRE_TRY(runtime.budget.spend(text.size() / 8));
  return runtime.budget.string(change(text));
}

// Upper case at the start of each word: after white space, '-' or an opening bracket.
std::string title_case(std::string_view text) {
  std::string out;
  std::string word;
  bool separators = true;
  const auto flush = [&] {
    if (!word.empty())
      out += to_upper(word.substr(0, code_point_size(word, 0))) +
             to_lower(std::string_view(word).substr(code_point_size(word, 0)));
    word.clear();
  };
  for (std::string_view piece : code_points(text)) {
    const char32_t c = code_point_at(piece, 0);
    const bool separates = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (separates != separators) flush();
    separators = separates;
    word += piece;
  }
  flush();
  return out;
}

}  // namespace

Result<Value> filter_upper(Runtime& runtime, const Value& self, const Args& args) {
  return map_text(runtime, self, args, "upper", to_upper);
}

Result<Value> filter_lower(Runtime& runtime, const Value& self, const Args& args) {
  return map_text(runtime, self, args, "lower", to_lower);
}

Result<Value> filter_capitalize(Runtime& runtime, const Value& self, const Args& args) {
  return map_text(runtime, self, args, "capitalize", capitalize);
}

Result<Value> filter_title(Runtime& runtime, const Value& self, const Args& args) {
  return map_text(runtime, self, args, "title", title_case);
}

Result<Value> filter_string(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "string", {}).status());
  if (self.is(Kind::kString)) return self;
  CADRE_ASSIGN(std::string text, to_str(runtime, self));
  return runtime.budget.string(std::move(text));
}

Result<Value> filter_trim(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "trim", {"chars"}));
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  if (bound[0] == nullptr || bound[0]->is(Kind::kNone)) {
    return runtime.budget.string(std::string(strip_right(strip_left(text))));
  }
  CADRE_ASSIGN(const std::string chars, string_arg(bound[0], "trim", "chars"));
  CADRE_TRY(runtime.budget.spend(text.size() * chars.size() / 64));
  return runtime.budget.string(std::string(strip_right(strip_left(text, chars), chars)));
}

Result<Value> filter_escape(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "escape", {}).status());
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  CADRE_TRY(runtime.budget.reserve_text(text.size()));
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return runtime.budget.string(std::move(out));
}

Result<Value> replace_text(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to,
                           std::int64_t count) {
  CADRE_TRY(runtime.budget.spend_search(text, from));
  std::string out;
  const auto add = [&](std::string_view part) -> Status {
    if (out.size() + part.size() > runtime.budget.limits().max_string) {
      return runtime.budget.reserve_text(out.size() + part.size());
    }
    out += part;
    return {};
  };
  std::size_t at = 0;
  std::int64_t done = 0;
  if (from.empty()) {  // between all code points, and at both ends
    while (count < 0 || done < count) {
      CADRE_TRY(add(to));
      ++done;
      if (at >= text.size()) break;
      const std::size_t n = code_point_size(text, at);
      CADRE_TRY(add(text.substr(at, n)));
      at += n;
    }
  } else {
    while (count < 0 || done < count) {
      const std::size_t found = text.find(from, at);
      if (found == std::string_view::npos) break;
      CADRE_TRY(add(text.substr(at, found - at)));
      CADRE_TRY(add(to));
      at = found + from.size();
      ++done;
    }
  }
  if (at < text.size()) CADRE_TRY(add(text.substr(at)));
  return runtime.budget.string(std::move(out));
}

Result<Value> filter_replace(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "replace", {"old", "new", "count"}, 2));
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  CADRE_ASSIGN(const std::string from, to_str(runtime, *bound[0]));
  CADRE_ASSIGN(const std::string to, to_str(runtime, *bound[1]));
  const bool all = bound[2] == nullptr || bound[2]->is(Kind::kNone);
  CADRE_ASSIGN(const std::int64_t count, int_arg(all ? nullptr : bound[2], "replace", "count", -1));
  return replace_text(runtime, text, from, to, count);
}

Result<Value> filter_indent(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "indent", {"width", "first", "blank"}));
  if (!self.is(Kind::kString)) return error(Code::kInvalidArgument, "wants a string, got ", type_name(self));
  std::string indent;
  if (bound[0] != nullptr && bound[0]->is(Kind::kString)) {
    indent = bound[0]->as_string();
  } else {
    CADRE_ASSIGN(const std::int64_t width, int_arg(bound[0], "indent", "width", 4));
    if (width > 10'000) return error(Code::kLimitExceeded, "an indent of ", width, " is over the limit of 10000");
    if (width > 0) indent.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool first = bound[1] != nullptr && truth(*bound[1]);
  const bool blank = bound[2] != nullptr && truth(*bound[2]);
  const std::string text = self.as_string() + "\n";
  const std::vector<std::string_view> lines = split_lines(text, /*keep_ends=*/false);
  CADRE_TRY(runtime.budget.reserve_text(text.size() + lines.size() * indent.size()));
  std::string out = first ? indent : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += indent;
    }
    out += lines[i];
  }
  return runtime.budget.string(std::move(out));
}

Result<Value> filter_center(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "center", {"width"}));
  CADRE_ASSIGN(const std::int64_t width, int_arg(bound[0], "center", "width", 80));
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  const auto size = static_cast<std::int64_t>(code_point_count(text));
  if (width <= size) return runtime.budget.string(text);
  CADRE_TRY(runtime.budget.reserve_text(static_cast<std::uint64_t>(width) + text.size()));
  const std::int64_t fill = width - size;
  const std::int64_t left = fill / 2 + (fill & width & 1);
  return runtime.budget.string(std::string(static_cast<std::size_t>(left), ' ') + text +
                               std::string(static_cast<std::size_t>(fill - left), ' '));
}

Result<Value> filter_wordcount(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "wordcount", {}).status());
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  CADRE_TRY(runtime.budget.spend(text.size() / 8));
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size(); at += code_point_size(text, at)) {
    const bool word = is_word(code_point_at(text, at));
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

Result<Value> filter_format(Runtime& runtime, const Value& self, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return error(Code::kInvalidArgument, "takes positional or keyword arguments, not both");
  }
  CADRE_ASSIGN(const std::string format, to_str(runtime, self));
  if (args.named.empty()) {
    CADRE_ASSIGN(const Value values, runtime.budget.tuple(args.positional));
    return percent_format(runtime, format, values);
  }
  auto dict = std::make_shared<DictObject>();
  for (const auto& [name, value] : args.named) dict->set(Value::string(name), value);
  CADRE_ASSIGN(const Value values, runtime.budget.dict(std::move(dict)));
  return percent_format(runtime, format, values);
}

Result<Value> filter_int(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "int", {"default", "base"}));
  CADRE_ASSIGN(const std::int64_t base, int_arg(bound[1], "int", "base", 10));
  if (base != 0 && (base < 2 || base > 36)) return error(Code::kInvalidArgument, "base is ", base, ", want 2 to 36");
  std::optional<std::int64_t> out;
  if (self.is(Kind::kString)) {
    CADRE_TRY(runtime.budget.spend(self.as_string().size() / 8));
    out = parse_int(self.as_string(), static_cast<int>(base));
    if (!out) {
      if (const auto real = parse_real(self.as_string())) out = truncate_real(*real);
    }
  } else if (self.is_integral()) {
    out = self.as_int();
  } else if (self.is(Kind::kFloat)) {
    out = truncate_real(self.as_real());
  } else if (self.is(Kind::kUndefined)) {
    return undefined_error(self);
  }
  if (out) return Value::integer(*out);
  return bound[0] != nullptr ? *bound[0] : Value::integer(0);
}

Result<Value> filter_float(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "float", {"default"}));
  if (self.is_number()) return Value::real(self.as_real());
  if (self.is(Kind::kUndefined)) return undefined_error(self);
  if (self.is(Kind::kString)) {
    CADRE_TRY(runtime.budget.spend(self.as_string().size() / 8));
    if (const auto real = parse_real(self.as_string())) return Value::real(*real);
  }
  return bound[0] != nullptr ? *bound[0] : Value::real(0);
}

Result<Value> filter_abs(Runtime&, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "abs", {}).status());
  if (self.is(Kind::kFloat)) return Value::real(std::abs(self.as_real()));
  if (!self.is_integral()) return error(Code::kInvalidArgument, "wants a number, got ", type_name(self));
  if (self.as_int() == INT64_MIN) return error(Code::kInvalidArgument, "the result does not fit in 64 bits");
  return Value::integer(std::abs(self.as_int()));
}

Result<Value> round_real(double value, std::int64_t precision, std::string_view method) {
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = value * scale;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (!std::isfinite(value) || precision > 300) return Value::real(value);
  if (precision < -300) return Value::real(std::copysign(0.0, value));
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return Value::real(std::nearbyint(value / scale) * scale);
  }
  // Printing rounds the exact binary value, half to even, as Python does.
  char buffer[700];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, static_cast<int>(precision)).ptr;
  double rounded = value;
  std::from_chars(buffer, end, rounded);
  return Value::real(rounded);
}

Result<Value> filter_round(Runtime&, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "round", {"precision", "method"}));
  CADRE_ASSIGN(const std::int64_t precision, int_arg(bound[0], "round", "precision", 0));
  CADRE_ASSIGN(const std::string method, string_arg(bound[1], "round", "method", "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return error(Code::kInvalidArgument, "method is '", method, "', want common, ceil or floor");
  }
  if (!self.is_number()) return error(Code::kInvalidArgument, "wants a number, got ", type_name(self));
  if (self.is_integral() && method == "common" && precision >= 0) return Value::integer(self.as_int());
  if (self.is_integral() && method == "common") {
    CADRE_ASSIGN(const Value real, round_real(self.as_real(), precision, method));
    return Value::integer(static_cast<std::int64_t>(std::clamp(real.as_real(), -9.2e18, 9.2e18)));
  }
  return round_real(self.as_real(), precision, method);
}

}  // namespace cadre::chat_template
