#include <algorithm>

#include "text/chat_template/filters.h"
#include "text/chat_template/methods.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

template <std::string (*Change)(std::string_view)>
Result<Value> changed(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "a method of str", {}).status());
  CADRE_TRY(runtime.budget.spend(self.as_string().size() / 8));
  return runtime.budget.string(Change(self.as_string()));
}

// Left and Right: which ends to strip.
template <bool Left, bool Right>
Result<Value> strip(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "strip", {"chars"}));
  std::string_view text = self.as_string();
  if (bound[0] == nullptr || bound[0]->is(Kind::kNone)) {
    if (Left) text = strip_left(text);
    if (Right) text = strip_right(text);
    return runtime.budget.string(std::string(text));
  }
  CADRE_ASSIGN(const std::string chars, string_arg(bound[0], "strip", "chars"));
  CADRE_TRY(runtime.budget.spend(text.size() * chars.size() / 64));
  if (Left) text = strip_left(text, chars);
  if (Right) text = strip_right(text, chars);
  return runtime.budget.string(std::string(text));
}

Result<Value> strings(Runtime& runtime, const std::vector<std::string_view>& parts) {
  List out;
  out.reserve(parts.size());
  for (std::string_view part : parts) {
    CADRE_ASSIGN(Value value, runtime.budget.string(std::string(part)));
    out.push_back(std::move(value));
  }
  return runtime.budget.list(std::move(out));
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> out;
  text = strip_left(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(out.size()) == limit) {
      out.push_back(text);  // what is left keeps its space
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space(code_point_at(text, end))) end += code_point_size(text, end);
    out.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return out;
}

std::vector<std::string_view> split_space_right(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> out;
  text = strip_right(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(out.size()) == limit) {
      out.push_back(text);
      break;
    }
    std::size_t start = 0;  // of the last word
    for (std::size_t at = 0; at < text.size(); at += code_point_size(text, at)) {
      if (is_space(code_point_at(text, at))) start = at + code_point_size(text, at);
    }
    out.push_back(text.substr(start));
    text = strip_right(text.substr(0, start));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_by(std::string_view text, std::string_view separator, std::int64_t limit) {
  std::vector<std::string_view> out;
  while (limit < 0 || static_cast<std::int64_t>(out.size()) < limit) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    out.push_back(text.substr(0, at));
    text = text.substr(at + separator.size());
  }
  out.push_back(text);
  return out;
}

std::vector<std::string_view> split_by_right(std::string_view text, std::string_view separator, std::int64_t limit) {
  std::vector<std::string_view> out;
  while (limit < 0 || static_cast<std::int64_t>(out.size()) < limit) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    out.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  out.push_back(text);
  std::reverse(out.begin(), out.end());
  return out;
}

template <bool FromRight>
Result<Value> split(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "split", {"sep", "maxsplit"}));
  CADRE_ASSIGN(const std::int64_t limit, int_arg(bound[1], "split", "maxsplit", -1));
  const std::string& text = self.as_string();
  CADRE_TRY(runtime.budget.spend(text.size() / 8));
  if (bound[0] == nullptr || bound[0]->is(Kind::kNone)) {
    // From the right each word walks the text again; only a limit makes that differ from the left.
    if (!FromRight || limit < 0) return strings(runtime, split_space(text, limit));
    CADRE_TRY(
        runtime.budget.spend(text.size() / 8 * static_cast<std::uint64_t>(std::min<std::int64_t>(limit, 1 << 20))));
    return strings(runtime, split_space_right(text, limit));
  }
  CADRE_ASSIGN(const std::string separator, string_arg(bound[0], "split", "sep"));
  if (separator.empty()) return error(Code::kInvalidArgument, "split() got an empty separator");
  CADRE_TRY(runtime.budget.spend_search(text, separator));
  return strings(runtime, FromRight ? split_by_right(text, separator, limit) : split_by(text, separator, limit));
}

template <bool FromRight>
Result<Value> partition(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "partition", {"sep"}, 1));
  CADRE_ASSIGN(const std::string separator, string_arg(bound[0], "partition", "sep"));
  if (separator.empty()) return error(Code::kInvalidArgument, "partition() got an empty separator");
  const std::string& text = self.as_string();
  CADRE_TRY(runtime.budget.reserve_text(text.size()));
  CADRE_TRY(runtime.budget.spend_search(text, separator));
  const std::size_t at = FromRight ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    const Value all = Value::string(text);
    const Value none = Value::string("");
    return runtime.budget.tuple(FromRight ? List{none, none, all} : List{all, none, none});
  }
  return runtime.budget.tuple(
      {Value::string(text.substr(0, at)), Value::string(separator), Value::string(text.substr(at + separator.size()))});
}

Result<Value> split_lines_method(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "splitlines", {"keepends"}));
  CADRE_TRY(runtime.budget.spend(self.as_string().size() / 8));
  return strings(runtime, split_lines(self.as_string(), bound[0] != nullptr && truth(*bound[0])));
}

// The part of a string that find, count, startswith and endswith look at.
struct Window {
  std::string_view text;
  std::int64_t start = 0;  // in code points
  bool valid = true;       // false where it starts past the end
};

Result<Window> window(Runtime& runtime, const Value& self, const Value* start, const Value* end) {
  Window out;
  out.text = self.as_string();
  const bool no_start = start == nullptr || start->is(Kind::kNone);
  const bool no_end = end == nullptr || end->is(Kind::kNone);
  if (no_start && no_end) return out;
  CADRE_TRY(runtime.budget.spend(out.text.size() / 16));
  CADRE_ASSIGN(std::int64_t from, int_arg(no_start ? nullptr : start, "a method of str", "start", 0));
  const auto size = static_cast<std::int64_t>(code_point_count(out.text));
  CADRE_ASSIGN(std::int64_t to, int_arg(no_end ? nullptr : end, "a method of str", "end", size));
  const auto from_end = [&](std::int64_t at) { return at < -size ? 0 : at < 0 ? at + size : at; };
  from = from_end(from);
  to = std::min(from_end(to), size);
  if (from > to) {
    out.valid = false;
    return out;
  }
  std::size_t first = 0;
  for (std::int64_t i = 0; i < from; ++i) first += code_point_size(out.text, first);
  std::size_t last = first;
  for (std::int64_t i = from; i < to; ++i) last += code_point_size(out.text, last);
  out.text = out.text.substr(first, last - first);
  out.start = from;
  return out;
}

template <bool AtEnd>
Result<Value> affix(Runtime& runtime, const Value& self, const Args& args) {
  const char* name = AtEnd ? "endswith" : "startswith";
  CADRE_ASSIGN(const Bound bound, bind(args, name, {"prefix", "start", "end"}, 1));
  CADRE_ASSIGN(const Window part, window(runtime, self, bound[1], bound[2]));
  const List candidates = bound[0]->is(Kind::kTuple) ? bound[0]->items() : List{*bound[0]};
  for (const Value& candidate : candidates) {
    CADRE_TRY(runtime.budget.spend(1 + candidate.weight() / 8));
    CADRE_ASSIGN(const std::string text, string_arg(&candidate, name, "prefix"));
    if (!part.valid) continue;
    if (AtEnd ? part.text.ends_with(text) : part.text.starts_with(text)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool FromRight, bool MustFind>
Result<Value> find(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "find", {"sub", "start", "end"}, 1));
  CADRE_ASSIGN(const std::string sub, string_arg(bound[0], "find", "sub"));
  CADRE_ASSIGN(const Window part, window(runtime, self, bound[1], bound[2]));
  CADRE_TRY(runtime.budget.spend_search(part.text, sub));
  const std::size_t at = !part.valid ? std::string_view::npos : FromRight ? part.text.rfind(sub) : part.text.find(sub);
  if (at == std::string_view::npos) {
    if (MustFind) return error(Code::kInvalidArgument, "index() does not find its text");
    return Value::integer(-1);
  }
  return Value::integer(part.start + static_cast<std::int64_t>(code_point_count(part.text.substr(0, at))));
}

Result<Value> count(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "count", {"sub", "start", "end"}, 1));
  CADRE_ASSIGN(const std::string sub, string_arg(bound[0], "count", "sub"));
  CADRE_ASSIGN(const Window part, window(runtime, self, bound[1], bound[2]));
  CADRE_TRY(runtime.budget.spend_search(part.text, sub));
  if (!part.valid) return Value::integer(0);
  if (sub.empty()) return Value::integer(static_cast<std::int64_t>(code_point_count(part.text)) + 1);
  std::int64_t found = 0;
  for (std::size_t at = part.text.find(sub); at != std::string_view::npos; at = part.text.find(sub, at + sub.size())) {
    ++found;
  }
  return Value::integer(found);
}

Result<Value> replace(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "replace", {"old", "new", "count"}, 2));
  CADRE_ASSIGN(const std::string from, string_arg(bound[0], "replace", "old"));
  CADRE_ASSIGN(const std::string to, string_arg(bound[1], "replace", "new"));
  CADRE_ASSIGN(const std::int64_t limit, int_arg(bound[2], "replace", "count", -1));
  return replace_text(runtime, self.as_string(), from, to, limit);
}

Result<Value> join(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "join", {"iterable"}, 1));
  CADRE_ASSIGN(const List items, iterate(runtime, *bound[0]));
  for (const Value& item : items) {
    if (!item.is(Kind::kString)) {
      return error(Code::kInvalidArgument, "join() wants strings, got ", type_name(item), "; use the filter join");
    }
  }
  return join_items(runtime, items, self.as_string());
}

Result<Value> format(Runtime& runtime, const Value& self, const Args& args) {
  return brace_format(runtime, self.as_string(), args);
}

template <bool Suffix>
Result<Value> remove_affix(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, Suffix ? "removesuffix" : "removeprefix", {"text"}, 1));
  CADRE_ASSIGN(const std::string affix_text, string_arg(bound[0], "removeprefix", "text"));
  std::string_view text = self.as_string();
  if (Suffix && text.ends_with(affix_text)) text.remove_suffix(affix_text.size());
  if (!Suffix && text.starts_with(affix_text)) text.remove_prefix(affix_text.size());
  return runtime.budget.string(std::string(text));
}

enum class Side { kLeft, kRight, kBoth };

// ljust: the text to the left; rjust: to the right; center.
template <Side At>
Result<Value> justify(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "just", {"width", "fillchar"}, 1));
  CADRE_ASSIGN(const std::int64_t width, int_arg(bound[0], "just", "width", 0));
  CADRE_ASSIGN(const std::string fill, string_arg(bound[1], "just", "fillchar", " "));
  if (code_point_count(fill) != 1) return error(Code::kInvalidArgument, "the fill must be one character");
  const auto size = static_cast<std::int64_t>(code_point_count(self.as_string()));
  if (width <= size) return self;
  if (width > static_cast<std::int64_t>(runtime.budget.limits().max_string)) {
    return runtime.budget.reserve_text(static_cast<std::uint64_t>(width));
  }
  const std::int64_t pad = width - size;
  const std::int64_t left = At == Side::kLeft ? 0 : At == Side::kRight ? pad : pad / 2 + (pad & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self.as_string();
  for (std::int64_t i = left; i < pad; ++i) out += fill;
  return runtime.budget.string(std::move(out));
}

Result<Value> zfill(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "zfill", {"width"}, 1));
  CADRE_ASSIGN(const std::int64_t width, int_arg(bound[0], "zfill", "width", 0));
  std::string text = self.as_string();
  const auto size = static_cast<std::int64_t>(code_point_count(text));
  if (width <= size) return self;
  CADRE_TRY(runtime.budget.reserve_text(static_cast<std::uint64_t>(width)));
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  text.insert(sign ? 1 : 0, static_cast<std::size_t>(width - size), '0');
  return runtime.budget.string(std::move(text));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::string_view piece : code_points(text)) {
    const char32_t c = code_point_at(piece, 0);
    out += is_upper(c) ? to_lower(piece) : is_lower(c) ? to_upper(piece) : std::string(piece);
  }
  return out;
}

bool is_alnum(char32_t c) { return is_letter(c) || is_digit(c) || (is_word(c) && c != '_'); }

// Not empty and every code point one that Holds.
template <bool (*Holds)(char32_t)>
Result<Value> all_are(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "a method of str", {}).status());
  const std::string& text = self.as_string();
  CADRE_TRY(runtime.budget.spend(text.size() / 16));
  for (std::size_t at = 0; at < text.size(); at += code_point_size(text, at)) {
    if (!Holds(code_point_at(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Result<Value> is_lower_method(Runtime& runtime, const Value& self, const Args& args) {
  return find_test("lower")(runtime, self, args);
}

Result<Value> is_upper_method(Runtime& runtime, const Value& self, const Args& args) {
  return find_test("upper")(runtime, self, args);
}

constexpr NamedNative kMethods[] = {
    {"capitalize", changed<capitalize>},
    {"casefold", changed<to_lower>},
    {"center", justify<Side::kBoth>},
    {"count", count},
    {"endswith", affix<true>},
    {"find", find<false, false>},
    {"format", format},
    {"index", find<false, true>},
    {"isalnum", all_are<is_alnum>},
    {"isalpha", all_are<is_letter>},
    {"isdecimal", all_are<is_digit>},
    {"isdigit", all_are<is_digit>},
    {"islower", is_lower_method},
    {"isnumeric", all_are<is_digit>},
    {"isspace", all_are<is_space>},
    {"isupper", is_upper_method},
    {"join", join},
    {"ljust", justify<Side::kLeft>},
    {"lower", changed<to_lower>},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", justify<Side::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", split_lines_method},
    {"startswith", affix<false>},
    {"strip", strip<true, true>},
    {"swapcase", changed<swap_case>},
    {"title", changed<title_words>},
    {"upper", changed<to_upper>},
    {"zfill", zfill},
};

}  // namespace

Native find_string_method(std::string_view name) { return find_native(kMethods, name); }

}  // namespace cadre::chat_template
