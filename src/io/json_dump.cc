// Json::dump: values as text.
#include <charconv>
#include <cmath>

#include "io/json.h"
#include "io/utf8.h"

namespace cadre {
namespace {

void dump_string(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    std::size_t length = 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[static_cast<unsigned char>(c) >> 4];
          out += kHex[static_cast<unsigned char>(c) & 15];
        } else if (const std::size_t bytes = utf8_char_bytes(text); bytes > 0) {
          length = bytes;
          out.append(text.substr(0, bytes));
        } else {
          out += "\xef\xbf\xbd";  // U+FFFD
        }
    }
    text.remove_prefix(length);
  }
  out += '"';
}

void dump_double(double number, JsonDumpOptions::NonFinite non_finite, std::string& out) {
  if (!std::isfinite(number)) {
    if (non_finite == JsonDumpOptions::NonFinite::kNull) {
      out += "null";
    } else {
      out += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    }
    return;
  }
  char buffer[32];  // the shortest text that reads back as the same double has at most 24 characters
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == text.npos) out += ".0";  // stays a double when read back
}

void new_line(int indent, int level, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(level), ' ');
}

void dump_value(const Json& value, const JsonDumpOptions& options, int level, std::string& out) {
  switch (value.type()) {
    case Json::Type::kNull:
      out += "null";
      return;
    case Json::Type::kBool:
      out += *value.as_bool("") ? "true" : "false";
      return;
    case Json::Type::kInt:
      out += std::to_string(*value.as_int(""));
      return;
    case Json::Type::kDouble:
      dump_double(*value.as_double(""), options.non_finite, out);
      return;
    case Json::Type::kString:
      dump_string(*value.as_string(""), out);
      return;
    case Json::Type::kArray: {
      out += '[';
      bool first = true;
      for (const Json& item : value.items()) {
        if (!first) out += options.indent < 0 ? ", " : ",";
        first = false;
        new_line(options.indent, level + 1, out);
        dump_value(item, options, level + 1, out);
      }
      if (!first) new_line(options.indent, level, out);
      out += ']';
      return;
    }
    case Json::Type::kObject: {
      out += '{';
      bool first = true;
      for (const auto& [key, member] : value.unwatched_members()) {
        if (!first) out += options.indent < 0 ? ", " : ",";
        first = false;
        new_line(options.indent, level + 1, out);
        dump_string(key, out);
        out += ": ";
        dump_value(member, options, level + 1, out);
      }
      if (!first) new_line(options.indent, level, out);
      out += '}';
      return;
    }
  }
}

}  // namespace

std::string Json::dump(const JsonDumpOptions& options) const {
  std::string out;
  dump_value(*this, options, 0, out);
  return out;
}

}  // namespace cadre
