#include "text/chat_template/json.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "text/chat_template/filters.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

// Builds values from the parser's events, which neither recurse nor keep a second tree.
class Builder {
 public:
  Builder(Budget& budget, std::string_view what) : budget_(budget), what_(what) {}

  Status status;
  Value root;

  bool null() { return add(Value::none()); }
  bool boolean(bool value) { return add(Value::boolean(value)); }
  bool number_integer(std::int64_t value) { return add(Value::integer(value)); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= INT64_MAX) return add(Value::integer(static_cast<std::int64_t>(value)));
    return add(Value::real(static_cast<double>(value)));
  }
  bool number_float(double value, const std::string&) { return add(Value::real(value)); }
  bool string(std::string& value) {
    Result<Value> made = budget_.string(std::move(value));
    return made.ok() ? add(std::move(made).value()) : fail(std::move(made).status());
  }
  bool binary(std::vector<std::uint8_t>&) { return fail(error(Code::kInvalidArgument, what_, " holds binary data")); }
  bool start_object(std::size_t) { return open(std::make_shared<DictObject>()); }
  bool start_array(std::size_t) { return open(nullptr); }
  bool key(std::string& value) {
    stack_.back().key = std::move(value);
    return true;
  }
  bool end_object() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    return close(budget_.dict(std::move(frame.dict)));
  }
  bool end_array() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    return close(budget_.list(std::move(frame.items)));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return fail(error(Code::kInvalidArgument, what_, " is not valid JSON at byte ", position));
  }

 private:
  struct Frame {
    std::shared_ptr<DictObject> dict;  // null for an array
    List items;
    std::string key;
  };

  bool fail(Status reason) {
    status = std::move(reason);
    return false;
  }
  bool open(std::shared_ptr<DictObject> dict) {
    if (stack_.size() >= static_cast<std::size_t>(kMaxValueDepth)) {
      return fail(error(Code::kLimitExceeded, what_, " nests deeper than ", kMaxValueDepth, " levels"));
    }
    stack_.push_back({std::move(dict), {}, {}});
    return true;
  }
  bool close(Result<Value> value) {
    return value.ok() ? add(std::move(value).value()) : fail(std::move(value).status());
  }
  bool add(Value value) {
    if (stack_.empty()) {
      root = std::move(value);
    } else if (Frame& frame = stack_.back(); frame.dict != nullptr) {
      frame.dict->set(Value::string(std::move(frame.key)), std::move(value));
    } else {
      frame.items.push_back(std::move(value));
    }
    return true;
  }

  Budget& budget_;
  const std::string what_;
  std::vector<Frame> stack_;
};

class Dumper {
 public:
  Dumper(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  Status dump(const Value& value, int depth) {
    CADRE_TRY(runtime_.budget.spend(1));
    if (out.size() > runtime_.budget.limits().max_string) return runtime_.budget.reserve_text(out.size());
    switch (value.kind()) {
      case Kind::kNone:
        out += "null";
        return {};
      case Kind::kBool:
        out += value.as_bool() ? "true" : "false";
        return {};
      case Kind::kInt:
        out += std::to_string(value.as_int());
        return {};
      case Kind::kFloat:
        out += real(value.as_real());
        return {};
      case Kind::kString:
        CADRE_TRY(runtime_.budget.spend(value.as_string().size() / 32));
        quote(value.as_string());
        return {};
      case Kind::kList:
      case Kind::kTuple:
        return list(value.items(), depth);
      case Kind::kDict:
        return dict(value.as<DictObject>(), depth);
      case Kind::kUndefined:
        return undefined_error(value);
      default:
        return error(Code::kInvalidArgument, "a value of type ", type_name(value), " has no form in JSON");
    }
  }

  std::string out;

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_repr(value);
  }

  void escape(unsigned code) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "\\u%04x", code);
    out += buffer;
  }

  void quote(std::string_view text) {
    static constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    out += '"';
    for (std::string_view piece : code_points(text)) {
      const char32_t c = code_point_at(piece, 0);
      if (const std::size_t at = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
          at != std::string_view::npos) {
        out += '\\';
        out += kLetters[at];
      } else if (c < 0x20 || (style_.ascii_only && c >= 0x7F && c < 0x10000)) {
        if (c == 0x7F) {
          out += piece;
        } else {
          escape(static_cast<unsigned>(c));
        }
      } else if (style_.ascii_only && c >= 0x10000) {
        escape(0xD800 + static_cast<unsigned>((c - 0x10000) >> 10));
        escape(0xDC00 + static_cast<unsigned>((c - 0x10000) & 0x3FF));
      } else {
        out += piece;
      }
    }
    out += '"';
  }

  void line(int depth) {
    if (!style_.pretty) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += style_.indent;
  }

  Status list(const List& items, int depth) {
    if (items.empty()) {
      out += "[]";
      return {};
    }
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(depth + 1);
      CADRE_TRY(dump(items[i], depth + 1));
    }
    line(depth);
    out += ']';
    return {};
  }

  // A key as json.dumps turns it into text.
  Result<std::string> key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.as_string();
      case Kind::kInt:
        return std::to_string(key.as_int());
      case Kind::kBool:
        return std::string(key.as_bool() ? "true" : "false");
      case Kind::kNone:
        return std::string("null");
      case Kind::kFloat:
        return real(key.as_real());
      default:
        return error(Code::kInvalidArgument, "a ", type_name(key), " cannot be a key in JSON");
    }
  }

  Status dict(const DictObject& dict, int depth) {
    if (dict.entries().empty()) {
      out += "{}";
      return {};
    }
    List order;
    List keys;
    for (std::size_t i = 0; i < dict.entries().size(); ++i) {
      order.push_back(Value::integer(static_cast<std::int64_t>(i)));
      keys.push_back(dict.entries()[i].first);
    }
    if (style_.sort_keys) CADRE_TRY(sort_by(runtime_, order, keys, false));
    out += '{';
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& [key, value] = dict.entries()[static_cast<std::size_t>(order[i].as_int())];
      if (i > 0) out += style_.item_separator;
      line(depth + 1);
      CADRE_ASSIGN(const std::string text, key_text(key));
      quote(text);
      out += style_.key_separator;
      CADRE_TRY(dump(value, depth + 1));
    }
    line(depth);
    out += '}';
    return {};
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

Result<Value> parse_json(Budget& budget, const std::string& text, std::string_view what) {
  Builder builder(budget, what);
  try {
    if (!nlohmann::json::sax_parse(text, &builder)) return std::move(builder.status);
  } catch (const std::exception& e) {
    return error(Code::kInvalidArgument, what, " cannot be read: ", e.what());
  }
  return std::move(builder.root);
}

Result<std::string> dump_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  Dumper dumper(runtime, style);
  CADRE_TRY(dumper.dump(value, 0));
  return std::move(dumper.out);
}

Result<Value> filter_tojson(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii_only = bound[0] != nullptr && truth(*bound[0]);
  style.sort_keys = bound[3] != nullptr && truth(*bound[3]);
  if (bound[1] != nullptr && !bound[1]->is(Kind::kNone)) {
    style.pretty = true;
    style.item_separator = ",";
    if (bound[1]->is(Kind::kString)) {
      style.indent = bound[1]->as_string();
    } else {
      CADRE_ASSIGN(const std::int64_t width, int_arg(bound[1], "tojson", "indent", 0));
      if (width > 1000) return error(Code::kLimitExceeded, "an indent of ", width, " is over the limit of 1000");
      if (width > 0) style.indent.assign(static_cast<std::size_t>(width), ' ');
    }
    if (style.indent.size() > 1000) return error(Code::kLimitExceeded, "the indent is over the limit of 1000 bytes");
  }
  if (bound[2] != nullptr && !bound[2]->is(Kind::kNone)) {
    CADRE_ASSIGN(const List separators, iterate(runtime, *bound[2]));
    if (separators.size() != 2) return error(Code::kInvalidArgument, "separators wants 2 strings");
    CADRE_ASSIGN(style.item_separator, string_arg(separators.data(), "tojson", "separators"));
    CADRE_ASSIGN(style.key_separator, string_arg(separators.data() + 1, "tojson", "separators"));
    if (style.item_separator.size() + style.key_separator.size() > 1000) {
      return error(Code::kLimitExceeded, "the separators are over the limit of 1000 bytes");
    }
  }
  CADRE_ASSIGN(std::string text, dump_json(runtime, self, style));
  return runtime.budget.string(std::move(text));
}

}  // namespace cadre::chat_template
