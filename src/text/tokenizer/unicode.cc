#include "text/tokenizer/unicode.h"

#include <simdjson.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace cadre::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

utf8proc_category_t category(std::uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// Marks follow their base in the order of their combining class, and marks of one class as they came. A sort of each
// run: insertion, as utf8proc itself does it, is quadratic in the length of a run, and the text is a stranger's.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto combining_class = [](utf8proc_int32_t point) {
    return static_cast<std::int64_t>(utf8proc_get_property(point)->combining_class);
  };
  struct Mark {
    std::int64_t combining_class;
    std::size_t order;
    utf8proc_int32_t point;
  };
  std::vector<Mark> run;
  for (std::size_t begin = 0; begin < points.size();) {
    run.clear();
    for (std::size_t i = begin; i < points.size() && combining_class(points[i]) != 0; ++i) {
      run.push_back({combining_class(points[i]), i, points[i]});
    }
    if (run.size() > 1) {
      std::sort(run.begin(), run.end(), [](const Mark& a, const Mark& b) {
        return a.combining_class != b.combining_class ? a.combining_class < b.combining_class : a.order < b.order;
      });
      for (std::size_t i = 0; i < run.size(); ++i) points[begin + i] = run[i].point;
    }
    begin += run.size() + 1;
  }
}

}  // namespace

std::uint32_t next_code_point(std::string_view text, std::size_t& pos) {
  auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[pos + i])); };
  const std::size_t length = utf8_length(text[pos]);
  std::uint32_t point = byte(0);
  if (length == 2) {
    point = (point & 0x1F) << 6 | (byte(1) & 0x3F);
  } else if (length == 3) {
    point = (point & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  } else if (length == 4) {
    point = (point & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  pos += length;
  return point;
}

std::uint32_t previous_code_point(std::string_view text, std::size_t& pos) {
  --pos;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
  std::size_t at = pos;
  return next_code_point(text, at);
}

void append_utf8(std::uint32_t point, std::string& out) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | point >> 6);
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | point >> 12);
    out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | point >> 18);
    out += static_cast<char>(0x80 | (point >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

std::size_t append_lossy(std::string_view bytes, bool last, std::string& out) {
  std::size_t pos = 0;
  while (pos < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[pos]);
    if (lead < 0x80) {
      out += bytes[pos++];
      continue;
    }
    // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
    std::size_t length = 0;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    std::size_t good = 1;
    while (good < length && pos + good < bytes.size()) {
      const auto next = static_cast<unsigned char>(bytes[pos + good]);
      if (next < low || next > high) break;
      low = 0x80;
      high = 0xBF;
      ++good;
    }
    if (length != 0 && good == length) {
      out += bytes.substr(pos, length);
      pos += length;
    } else if (length != 0 && pos + good == bytes.size() && !last) {
      break;
    } else {
      out += kReplacement;
      pos += good;
    }
  }
  return pos;
}

bool valid_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

bool is_whitespace(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(std::uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_mark(std::uint32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(std::uint32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_word(std::uint32_t c) {
  const auto kind = category(c);
  if ((kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) || kind == UTF8PROC_CATEGORY_PC) return true;
  if (c == 0x200C || c == 0x200D) return true;
  // Letters in circles and squares: symbols that are alphabetic all the same.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compat = form == NormalForm::kKc || form == NormalForm::kKd;
  const bool compose = form == NormalForm::kC || form == NormalForm::kKc;
  const auto decomposition =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  // The longest decomposition of one character has 18 code points (U+FDFA).
  utf8proc_int32_t buffer[64];
  for (std::size_t pos = 0; pos < text.size();) {
    const auto point = static_cast<utf8proc_int32_t>(next_code_point(text, pos));
    int boundary = 0;
    const auto count = utf8proc_decompose_char(point, buffer, 64, decomposition, &boundary);
    if (count <= 0 || count > 64) {
      points.push_back(point);
    } else {
      points.insert(points.end(), buffer, buffer + count);
    }
  }
  order_marks(points);
  if (compose) {
    const auto count = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (count >= 0) points.resize(static_cast<std::size_t>(count));
  }
  std::string out;
  out.reserve(text.size());
  for (const auto point : points) append_utf8(static_cast<std::uint32_t>(point), out);
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint32_t point = next_code_point(text, pos);
    if (point == 0x130) {
      out += "i\xCC\x87";  // the only character whose lower case is two
    } else {
      append_utf8(static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))), out);
    }
  }
  return out;
}

}  // namespace cadre::text
