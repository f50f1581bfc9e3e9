#include "text/chat_template/unicode.h"

#include <utf8proc.h>

namespace cadre::chat_template {
namespace {

struct Decoded {
  char32_t c;
  std::size_t size;
  bool valid;
};

Decoded decode(std::string_view text, std::size_t at) {
  utf8proc_int32_t c = -1;
  // A code point takes at most 4 bytes; the bound keeps the length inside utf8proc's signed type.
  const auto left = static_cast<utf8proc_ssize_t>(text.size() - at < 4 ? text.size() - at : 4);
  const utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at), left, &c);
  if (n <= 0) return {static_cast<unsigned char>(text[at]), 1, false};
  return {static_cast<char32_t>(c), static_cast<std::size_t>(n), true};
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Code points whose upper case is more than one code point and that occur in ordinary text.
const char* special_upper(char32_t c) {
  switch (c) {
    case 0xDF:
      return "SS";
    case 0x149:
      return "\xCA\xBCN";
    case 0x1F0:
      return "J\xCC\x8C";
    case 0xFB00:
      return "FF";
    case 0xFB01:
      return "FI";
    case 0xFB02:
      return "FL";
    case 0xFB03:
      return "FFI";
    case 0xFB04:
      return "FFL";
    case 0xFB05:
    case 0xFB06:
      return "ST";
    default:
      return nullptr;
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130) {  // dotted capital I: two code points
    out += "i\xCC\x87";
    return;
  }
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool contains_code_point(std::string_view set, std::string_view code_point) {
  for (std::size_t at = 0; at < set.size();) {
    const std::size_t n = code_point_size(set, at);
    if (set.substr(at, n) == code_point) return true;
    at += n;
  }
  return false;
}

// The start of the last code point of a text that is not empty.
std::size_t last_start(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return code_point_size(text, at) == text.size() - at ? at : text.size() - 1;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::size_t code_point_size(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]) < 0x80 ? 1 : decode(text, at).size;
}

char32_t code_point_at(std::string_view text, std::size_t at) { return decode(text, at).c; }

void append_code_point(std::string& out, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

std::size_t code_point_count(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += code_point_size(text, at)) ++count;
  return count;
}

std::vector<std::string_view> code_points(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = code_point_size(text, at);
    out.push_back(text.substr(at, n));
    at += n;
  }
  return out;
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Decoded d = decode(text, at);
    if (!d.valid) return false;
    at += d.size;
  }
  return true;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  const utf8proc_category_t cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_word(char32_t c) {
  const utf8proc_category_t cat = category(c);
  return is_letter(c) || c == '_' || (cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO);
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_upper(char32_t c) {
  const utf8proc_category_t cat = category(c);
  return cat == UTF8PROC_CATEGORY_LU || cat == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const utf8proc_category_t cat = category(c);
  return cat != UTF8PROC_CATEGORY_CN && cat < UTF8PROC_CATEGORY_ZS;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded d = decode(text, at);
    if (!d.valid) {
      out += text[at];
    } else if (const char* special = special_upper(d.c)) {
      out += special;
    } else {
      append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(d.c))));
    }
    at += d.size;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded d = decode(text, at);
    // A capital sigma that ends a word becomes the final form.
    if (d.c == 0x3A3 && at > 0 && is_letter(code_point_at(text, last_start(text.substr(0, at)))) &&
        (at + d.size >= text.size() || !is_letter(code_point_at(text, at + d.size)))) {
      append_code_point(out, 0x3C2);
    } else if (d.valid) {
      append_lower(out, d.c);
    } else {
      out += text[at];
    }
    at += d.size;
  }
  return out;
}

std::string to_title(char32_t c) {
  std::string out;
  if (const char* special = special_upper(c)) {
    const std::string_view upper = special;
    const std::size_t first = code_point_size(upper, 0);
    return std::string(upper.substr(0, first)) + to_lower(upper.substr(first));
  }
  append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const Decoded d = decode(text, 0);
  if (!d.valid) return std::string(text.substr(0, 1)) + to_lower(text.substr(1));
  return to_title(d.c) + to_lower(text.substr(d.size));
}

std::string title_words(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded d = decode(text, at);
    if (!d.valid) {
      out += text[at];
    } else if (in_word) {
      append_lower(out, d.c);
    } else {
      out += to_title(d.c);
    }
    in_word = d.valid && (is_lower(d.c) || is_upper(d.c));
    at += d.size;
  }
  return out;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty() && is_space(code_point_at(text, 0))) text.remove_prefix(code_point_size(text, 0));
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const std::size_t at = last_start(text);
    if (!is_space(code_point_at(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    const std::size_t n = code_point_size(text, 0);
    if (!contains_code_point(chars, text.substr(0, n))) break;
    text.remove_prefix(n);
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    const std::size_t at = last_start(text);
    if (!contains_code_point(chars, text.substr(at))) break;
    text = text.substr(0, at);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = code_point_size(text, at);
    if (!is_line_end(code_point_at(text, at))) {
      at += n;
      continue;
    }
    std::size_t next = at + n;
    if (text[at] == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.push_back(text.substr(start, (keep_ends ? next : at) - start));
    start = at = next;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace cadre::chat_template
