// "..." % values and "...".format(values).
#include <charconv>
#include <cmath>

#include "text/chat_template/runtime.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

constexpr std::int64_t kMaxWidth = 10'000;

// [[fill]align][sign][#][0][width][,][.precision][type], which both kinds of formatting come down to.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false;
  bool comma = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = '\0';
};

Result<std::int64_t> number_in(std::string_view text, std::size_t& at) {
  std::int64_t out = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    out = out * 10 + (text[at++] - '0');
    if (out > kMaxWidth) return error(Code::kLimitExceeded, "a format's width is over the limit of ", kMaxWidth);
  }
  return out;
}

std::string padded(const Spec& spec, std::string sign, std::string body, char default_align) {
  const auto size = static_cast<std::int64_t>(code_point_count(sign) + code_point_count(body));
  const std::int64_t pad = spec.width > size ? spec.width - size : 0;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::int64_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
  std::string before;
  std::string after;
  for (std::int64_t i = 0; i < left; ++i) before += spec.fill;
  for (std::int64_t i = left; i < pad; ++i) after += spec.fill;
  if (align == '=') return sign + before + body;
  return before + sign + body + after;
}

void group_thousands(std::string& digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = whole; at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
}

Result<Value> format_integer(Runtime& runtime, const Spec& spec, std::int64_t value) {
  const char lower = static_cast<char>(spec.type | 0x20);
  const int base = spec.type == '\0' ? 10 : lower == 'x' ? 16 : lower == 'o' ? 8 : lower == 'b' ? 2 : 10;
  const bool negative = value < 0;
  const std::uint64_t size = negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  char buffer[80];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof buffer, size, base).ptr);
  if (spec.type == 'X') digits = to_upper(digits);
  if (spec.comma) group_thousands(digits);
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  return runtime.budget.string(padded(spec, std::move(sign), std::move(digits), '>'));
}

Result<Value> format_real(Runtime& runtime, const Spec& spec, double value) {
  const double size = std::abs(value);
  std::string digits;
  const char lower = static_cast<char>(spec.type | 0x20);
  if (spec.type == '\0' && spec.precision < 0) {
    digits = real_repr(size);
  } else {
    const auto precision = static_cast<int>(std::min<std::int64_t>(spec.precision < 0 ? 6 : spec.precision, 300));
    const bool percent = spec.type == '%';
    const auto style = lower == 'e'                        ? std::chars_format::scientific
                       : lower == 'g' || spec.type == '\0' ? std::chars_format::general
                                                           : std::chars_format::fixed;
    char buffer[1000];
    digits.assign(buffer,
                  std::to_chars(buffer, buffer + sizeof buffer, percent ? size * 100 : size, style, precision).ptr);
    if (percent) digits += '%';
  }
  if (spec.type == 'E' || spec.type == 'G' || spec.type == 'F') digits = to_upper(digits);
  if (spec.comma) group_thousands(digits);
  std::string sign = std::signbit(value) && !std::isnan(value) ? "-"
                     : spec.sign == '-'                        ? ""
                                                               : std::string(1, spec.sign);
  return runtime.budget.string(padded(spec, std::move(sign), std::move(digits), '>'));
}

Result<Value> format_text(Runtime& runtime, const Spec& spec, std::string text, char default_align) {
  if (spec.precision >= 0) {
    std::size_t end = 0;
    for (std::int64_t i = 0; i < spec.precision && end < text.size(); ++i) end += code_point_size(text, end);
    text.resize(end);
  }
  return runtime.budget.string(padded(spec, "", std::move(text), default_align));
}

// One value in the spec of str.format.
Result<Value> format_value(Runtime& runtime, const Spec& spec, const Value& value) {
  static constexpr std::string_view kRealTypes = "eEfFgG%";
  if (value.is(Kind::kFloat) ||
      (value.is_integral() && spec.type != '\0' && kRealTypes.find(spec.type) != std::string_view::npos)) {
    return format_real(runtime, spec, value.as_real());
  }
  static constexpr std::string_view kIntegerTypes = "dxXob";
  const bool as_integer = spec.type != '\0' && kIntegerTypes.find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kInt) || (value.is(Kind::kBool) && as_integer)) {
    if (spec.type != '\0' && !as_integer) {
      return error(Code::kInvalidArgument, "format '", std::string(1, spec.type), "' does not fit an int");
    }
    return format_integer(runtime, spec, value.as_int());
  }
  if (spec.type != '\0' && spec.type != 's') {
    return error(Code::kInvalidArgument, "format '", std::string(1, spec.type), "' does not fit a ", type_name(value));
  }
  CADRE_ASSIGN(std::string text, to_str(runtime, value));
  return format_text(runtime, spec, std::move(text), '<');
}

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const std::size_t first = text.empty() ? 0 : code_point_size(text, 0);
  if (first > 0 && first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  const auto take = [&](char c) { return at < text.size() && text[at] == c ? (++at, true) : false; };
  if (at < text.size() && (text[at] == '+' || text[at] == ' ' || text[at] == '-')) spec.sign = text[at++];
  spec.alternate = take('#');
  if (take('0')) {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  CADRE_ASSIGN(spec.width, number_in(text, at));
  spec.comma = take(',');
  if (take('.')) {
    CADRE_ASSIGN(spec.precision, number_in(text, at));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return error(Code::kInvalidArgument, "format '", text, "' is malformed");
  return spec;
}

Result<Value> percent_value(Runtime& runtime, Spec spec, const Value& value) {
  const auto wrong = [&] {
    return error(Code::kInvalidArgument, "'%", std::string(1, spec.type), "' does not fit a ", type_name(value));
  };
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text;
      CADRE_TRY(spec.type == 's' ? append_str(runtime, value, text) : append_repr(runtime, value, text));
      return format_text(runtime, spec, std::move(text), '>');
    }
    case 'c':
      if (!value.is(Kind::kString) || code_point_count(value.as_string()) != 1) return wrong();
      return format_text(runtime, spec, value.as_string(), '>');
    case 'd':
    case 'i':
    case 'u': {
      if (!value.is_number()) return wrong();
      if (value.is(Kind::kFloat) && !(std::abs(value.as_real()) < 9.2e18)) return wrong();
      spec.type = 'd';
      return format_integer(runtime, spec,
                            value.is(Kind::kFloat) ? static_cast<std::int64_t>(value.as_real()) : value.as_int());
    }
    case 'x':
    case 'X':
    case 'o':
      if (!value.is_integral()) return wrong();
      return format_integer(runtime, spec, value.as_int());
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.is_number()) return wrong();
      return format_real(runtime, spec, value.as_real());
    default:
      return error(Code::kInvalidArgument, "'%", std::string(1, spec.type), "' is not a known format");
  }
}

// "0.name[key]" of a replacement field, after the first part.
Result<Value> follow_field(Runtime& runtime, Value value, std::string_view path) {
  while (!path.empty()) {
    if (path[0] == '.') {
      path.remove_prefix(1);
      const std::size_t end = std::min(path.find_first_of(".["), path.size());
      CADRE_ASSIGN(value, get_attribute(runtime, value, std::string(path.substr(0, end))));
      path.remove_prefix(end);
      continue;
    }
    const std::size_t end = path.find(']');
    if (path[0] != '[' || end == std::string_view::npos) break;
    const std::string key(path.substr(1, end - 1));
    const bool index = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    CADRE_ASSIGN(value, get_item(runtime, value, index ? Value::integer(std::stoll(key)) : Value::string(key)));
    path.remove_prefix(end + 1);
  }
  if (!path.empty()) return error(Code::kInvalidArgument, "format() has a malformed field");
  return value;
}

}  // namespace

Result<Value> percent_format(Runtime& runtime, const std::string& format, const Value& args) {
  std::string out;
  std::size_t used = 0;
  const auto next_value = [&]() -> Result<Value> {
    if (!args.is(Kind::kTuple)) {
      if (used++ == 0) return args;
    } else if (used < args.items().size()) {
      return args.items()[used++];
    }
    return error(Code::kInvalidArgument, "'%' has too few values for its format");
  };
  bool mapped = false;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i >= format.size()) return error(Code::kInvalidArgument, "a format ends in '%'");
    std::optional<Value> named;
    if (format[i] == '(') {
      const std::size_t end = format.find(')', i);
      if (end == std::string::npos) return error(Code::kInvalidArgument, "a format has '%(' without ')'");
      if (!args.is(Kind::kDict)) return error(Code::kInvalidArgument, "'%(name)' wants a dict, got ", type_name(args));
      const std::string name = format.substr(i + 1, end - i - 1);
      const Value* found = args.as<DictObject>().find(name);
      if (found == nullptr) return error(Code::kInvalidArgument, "a format's dict has no key '", name, "'");
      named = *found;
      mapped = true;
      i = end + 1;
    }
    Spec spec;
    for (; i < format.size(); ++i) {
      if (format[i] == '-') {
        spec.align = '<';
        spec.fill = " ";
      } else if (format[i] == '0' && spec.align != '<') {
        spec.align = '=';
        spec.fill = "0";
      } else if (format[i] == '+' || (format[i] == ' ' && spec.sign != '+')) {
        spec.sign = format[i];
      } else if (format[i] == '#') {
        spec.alternate = true;
      } else if (format[i] != '0' && format[i] != ' ') {
        break;
      }
    }
    CADRE_ASSIGN(spec.width, number_in(format, i));
    if (i < format.size() && format[i] == '.') {
      ++i;
      CADRE_ASSIGN(spec.precision, number_in(format, i));
    }
    if (i >= format.size()) return error(Code::kInvalidArgument, "a format is incomplete");
    spec.type = format[i];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (!named) {
      CADRE_ASSIGN(named, next_value());
    }
    CADRE_ASSIGN(const Value text, percent_value(runtime, spec, *named));
    out += text.as_string();
    if (out.size() > runtime.budget.limits().max_string) break;  // the last line says so
  }
  // As in Python, only a tuple or a single plain value has to be used up.
  const bool may_stay = mapped || args.is(Kind::kDict) || args.is(Kind::kList) || args.is(Kind::kUndefined) ||
                        (args.is(Kind::kView) && !args.as<ViewObject>().repr.empty());
  const bool all_used = args.is(Kind::kTuple) ? used == args.items().size() : used > 0 || may_stay;
  if (!all_used && out.size() <= runtime.budget.limits().max_string) {
    return error(Code::kInvalidArgument, "'%' has more values than its format takes");
  }
  return runtime.budget.string(std::move(out));
}

Result<Value> brace_format(Runtime& runtime, const std::string& format, const Args& args) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool doubled = i + 1 < format.size() && format[i + 1] == c;
    if ((c != '{' && c != '}') || doubled) {
      out += c;
      if (c == '{' || c == '}') ++i;
      continue;
    }
    if (c == '}') return error(Code::kInvalidArgument, "format() got a single '}'");
    const std::size_t end = format.find('}', i);
    if (end == std::string::npos) return error(Code::kInvalidArgument, "format() got a '{' without '}'");
    std::string_view field = std::string_view(format).substr(i + 1, end - i - 1);
    i = end;
    const std::size_t colon = field.find(':');
    CADRE_ASSIGN(const Spec spec, parse_spec(colon == std::string_view::npos ? "" : field.substr(colon + 1)));
    field = field.substr(0, colon);
    char conversion = 's';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    const std::size_t dot = std::min(field.find_first_of(".["), field.size());
    const std::string name(field.substr(0, dot));
    Value value;
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      const std::size_t at = name.empty() ? next++ : name.size() < 6 ? std::stoul(name) : args.positional.size();
      if (at >= args.positional.size()) return error(Code::kInvalidArgument, "format() has no value number ", at);
      value = args.positional[at];
    } else {
      bool found = false;
      for (const auto& [key, named] : args.named) {
        if (key == name) {
          value = named;
          found = true;
        }
      }
      if (!found) return error(Code::kInvalidArgument, "format() has no value '", name, "'");
    }
    CADRE_ASSIGN(value, follow_field(runtime, value, field.substr(dot)));
    if (conversion == 'r') {
      std::string text;
      CADRE_TRY(append_repr(runtime, value, text));
      value = Value::string(std::move(text));
    }
    CADRE_ASSIGN(const Value text, format_value(runtime, spec, value));
    out += text.as_string();
    if (out.size() > runtime.budget.limits().max_string) break;  // the next line says so
  }
  return runtime.budget.string(std::move(out));
}

}  // namespace cadre::chat_template
