// Python's str() and repr().
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/chat_template/runtime.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

void append_escape(std::string& out, char32_t c) {
  char buffer[16];
  const auto code = static_cast<unsigned>(c);
  std::snprintf(buffer, sizeof buffer, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  out += buffer;
}

void append_quoted(const std::string& text, std::string& out) {
  const bool double_quotes = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out += quote;
  for (std::string_view piece : code_points(text)) {
    const char32_t c = code_point_at(piece, 0);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += piece;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += piece;
    } else {
      append_escape(out, c);
    }
  }
  out += quote;
}

class Writer {
 public:
  Writer(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}

  Status repr(const Value& value, int depth) {
    CADRE_TRY(runtime_.budget.spend(1));
    if (out_.size() > runtime_.budget.limits().max_string || depth > 2 * kMaxValueDepth) {
      return error(Code::kLimitExceeded, "the text of a value is over the limit of ",
                   runtime_.budget.limits().max_string, " bytes or ", 2 * kMaxValueDepth, " levels");
    }
    switch (value.kind()) {
      case Kind::kUndefined:
        out_ += "Undefined";
        return {};
      case Kind::kString:
        CADRE_TRY(runtime_.budget.spend(value.as_string().size() / 16));
        append_quoted(value.as_string(), out_);
        return {};
      case Kind::kList:
        return items(value.items(), "[", "]", depth);
      case Kind::kTuple:
        return items(value.items(), "(", value.items().size() == 1 ? ",)" : ")", depth);
      case Kind::kDict:
        return dict(value.as<DictObject>(), depth);
      case Kind::kNamespace:
        out_ += "<Namespace ";
        CADRE_TRY(dict(value.as<NamespaceObject>().attributes, depth));
        out_ += '>';
        return {};
      case Kind::kView: {
        const auto& view = value.as<ViewObject>();
        if (!view.repr.empty()) {
          out_ += view.repr;
          return {};
        }
        out_ += view.type;
        return items(view.items, "([", "])", depth);
      }
      case Kind::kFunction:
        out_ += "<function " + value.as<FunctionObject>().name + '>';
        return {};
      default:
        return scalar(value);
    }
  }

 private:
  Status scalar(const Value& value) {
    if (value.is(Kind::kNone)) {
      out_ += "None";
    } else if (value.is(Kind::kBool)) {
      out_ += value.as_bool() ? "True" : "False";
    } else if (value.is(Kind::kInt)) {
      out_ += std::to_string(value.as_int());
    } else if (value.is(Kind::kFloat)) {
      out_ += real_repr(value.as_real());
    } else {
      out_ += '<';
      out_ += type_name(value);
      out_ += '>';
    }
    return {};
  }

  Status items(const List& list, const char* open, const char* close, int depth) {
    out_ += open;
    bool first = true;
    for (const Value& item : list) {
      if (!first) out_ += ", ";
      first = false;
      CADRE_TRY(repr(item, depth + 1));
    }
    out_ += close;
    return {};
  }

  Status dict(const DictObject& dict, int depth) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      CADRE_TRY(repr(key, depth + 1));
      out_ += ": ";
      CADRE_TRY(repr(value, depth + 1));
    }
    out_ += '}';
    return {};
  }

  Runtime& runtime_;
  std::string& out_;
};

}  // namespace

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += '.' + digits.substr(1);
    const int size = exponent < 0 ? -exponent : exponent;
    out += exponent < 0 ? "e-" : "e+";
    if (size < 10) out += '0';
    return out + std::to_string(size);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + '.' + digits.substr(whole);
}

Status append_repr(Runtime& runtime, const Value& value, std::string& out) {
  return Writer(runtime, out).repr(value, 0);
}

Status append_str(Runtime& runtime, const Value& value, std::string& out) {
  if (value.is(Kind::kUndefined)) return {};
  if (!value.is(Kind::kString)) return append_repr(runtime, value, out);
  CADRE_TRY(runtime.budget.spend(value.as_string().size() / 64));
  out += value.as_string();
  return {};
}

Result<std::string> to_str(Runtime& runtime, const Value& value) {
  std::string out;
  CADRE_TRY(append_str(runtime, value, out));
  return out;
}

}  // namespace cadre::chat_template
