#include <cmath>

#include "text/chat_template/filters.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

// An absent argument, or none.
const Value* unless_none(const Value* value) { return value == nullptr || value->is(Kind::kNone) ? nullptr : value; }

bool flag(const Value* value, bool fallback) { return value == nullptr ? fallback : truth(*value); }

// "a.b" and "0" into names and indices.
List path_parts(const Value& path) {
  if (!path.is(Kind::kString)) return {path};
  List parts;
  const std::string& text = path.as_string();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t dot = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, dot - at);
    const bool index = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    parts.push_back(index ? Value::integer(std::stoll(part)) : Value::string(part));
    at = dot + 1;
  }
  return parts;
}

// The value to order or compare an element by.
Result<Value> key_of(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr) {
    CADRE_ASSIGN(key, follow_path(runtime, item, *attribute, nullptr));
  }
  if (!case_sensitive) CADRE_TRY(runtime.budget.reserve_text(key.is(Kind::kString) ? key.as_string().size() : 0));
  return case_sensitive ? key : ignore_case(key);
}

Result<List> keys_of(Runtime& runtime, const List& items, const Value* attribute, bool case_sensitive) {
  List keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    CADRE_ASSIGN(Value key, key_of(runtime, item, attribute, case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<Value> extreme(Runtime& runtime, const Value& self, const Args& args, const char* name, int wanted) {
  CADRE_ASSIGN(const Bound bound, bind(args, name, {"case_sensitive", "attribute"}));
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  if (items.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  CADRE_ASSIGN(const List keys, keys_of(runtime, items, unless_none(bound[1]), flag(bound[0], false)));
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    CADRE_ASSIGN(const int order, compare(runtime, keys[i], keys[best]));
    if (order == wanted) best = i;
  }
  return items[best];
}

}  // namespace

Value ignore_case(const Value& value) {
  return value.is(Kind::kString) ? Value::string(to_lower(value.as_string())) : value;
}

Result<Value> follow_path(Runtime& runtime, const Value& item, const Value& path, const Value* fallback) {
  Value value = item;
  CADRE_TRY(runtime.budget.spend(path.weight()));
  for (const Value& part : path_parts(path)) {
    CADRE_TRY(runtime.budget.spend(1));
    CADRE_ASSIGN(value, get_item(runtime, value, part));
    if (fallback != nullptr && value.is(Kind::kUndefined)) value = *fallback;
  }
  return value;
}

// A merge sort of our own: comparisons can fail, and a template's values need not be ordered (NaN), which std::sort
// does not forgive.
Status sort_by(Runtime& runtime, List& items, const List& keys, bool reverse) {
  std::vector<std::size_t> from(items.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = i;
  std::vector<std::size_t> to(from.size());
  for (std::size_t width = 1; width < from.size(); width *= 2) {
    for (std::size_t start = 0; start < from.size(); start += 2 * width) {
      const std::size_t middle = std::min(start + width, from.size());
      const std::size_t end = std::min(start + 2 * width, from.size());
      std::size_t left = start;
      std::size_t right = middle;
      for (std::size_t out = start; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          CADRE_ASSIGN(const int order, compare(runtime, keys[from[right]], keys[from[left]]));
          take_right = reverse ? order == 1 : order == -1;
        }
        to[out] = take_right ? from[right++] : from[left++];
      }
    }
    from.swap(to);
  }
  List sorted;
  sorted.reserve(items.size());
  for (std::size_t i : from) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
  return {};
}

Result<Value> join_items(Runtime& runtime, const List& items, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += separator;
    CADRE_TRY(append_str(runtime, items[i], out));
    CADRE_TRY(runtime.budget.spend(1 + separator.size() / 64));
    if (out.size() > runtime.budget.limits().max_string) break;  // the next line says so
  }
  return runtime.budget.string(std::move(out));
}

Result<Value> filter_default(Runtime&, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "default", {"default_value", "boolean"}));
  const bool replaced = self.is(Kind::kUndefined) || (flag(bound[1], false) && !truth(self));
  if (!replaced) return self;
  return bound[0] != nullptr ? *bound[0] : Value::string("");
}

Result<Value> filter_length(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "length", {}).status());
  switch (self.kind()) {
    case Kind::kUndefined:
      return Value::integer(0);
    case Kind::kString:
      CADRE_TRY(runtime.budget.spend(self.as_string().size() / 64));
      return Value::integer(static_cast<std::int64_t>(code_point_count(self.as_string())));
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return Value::integer(static_cast<std::int64_t>(self.items().size()));
    case Kind::kDict:
      return Value::integer(static_cast<std::int64_t>(self.as<DictObject>().entries().size()));
    default:
      return error(Code::kInvalidArgument, "a value of type ", type_name(self), " has no length, use '| list' first");
  }
}

Result<Value> filter_first(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "first", {}).status());
  if (self.is(Kind::kIterator)) {  // takes one element and leaves the others
    auto& iterator = self.as<IteratorObject>();
    if (!iterator.used && !iterator.items.empty()) {
      Value first = std::move(iterator.items.front());
      iterator.items.erase(iterator.items.begin());
      CADRE_TRY(runtime.budget.spend(1 + iterator.items.size() / 8));
      return first;
    }
  }
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : items.front();
}

Result<Value> filter_last(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "last", {}).status());
  if (self.is(Kind::kIterator))
    return error(Code::kInvalidArgument, "an iterator has no last item, use '| list' first");
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.back();
}

Result<Value> filter_list(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "list", {}).status());
  CADRE_ASSIGN(List items, iterate(runtime, self));
  return runtime.budget.list(std::move(items));
}

Result<Value> filter_reverse(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "reverse", {}).status());
  if (self.is(Kind::kIterator))
    return error(Code::kInvalidArgument, "an iterator cannot be reversed, use '| list' first");
  CADRE_ASSIGN(List items, iterate(runtime, self));
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::kString)) return join_items(runtime, items, "");
  return runtime.budget.iterator(std::move(items));
}

Result<Value> filter_join(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "join", {"d", "attribute"}));
  std::string separator;
  if (bound[0] != nullptr) {
    CADRE_ASSIGN(separator, to_str(runtime, *bound[0]));
  }
  CADRE_ASSIGN(List items, iterate(runtime, self));
  if (const Value* attribute = unless_none(bound[1])) {
    for (Value& item : items) {
      CADRE_ASSIGN(item, follow_path(runtime, item, *attribute, nullptr));
    }
  }
  return join_items(runtime, items, separator);
}

Result<Value> filter_items(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "items", {}).status());
  if (self.is(Kind::kUndefined)) return runtime.budget.iterator({});
  if (!self.is(Kind::kDict)) return error(Code::kInvalidArgument, "wants a dict, got ", type_name(self));
  List items;
  for (const auto& [key, value] : self.as<DictObject>().entries()) {
    CADRE_ASSIGN(Value pair, runtime.budget.tuple({key, value}));
    items.push_back(std::move(pair));
  }
  return runtime.budget.iterator(std::move(items));
}

Result<Value> filter_dictsort(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "dictsort", {"case_sensitive", "by", "reverse"}));
  if (!self.is(Kind::kDict)) return error(Code::kInvalidArgument, "wants a dict, got ", type_name(self));
  CADRE_ASSIGN(const std::string by, string_arg(bound[1], "dictsort", "by", "key"));
  if (by != "key" && by != "value") return error(Code::kInvalidArgument, "by is '", by, "', want key or value");
  List pairs;
  List keys;
  for (const auto& [key, value] : self.as<DictObject>().entries()) {
    CADRE_ASSIGN(Value pair, runtime.budget.tuple({key, value}));
    pairs.push_back(std::move(pair));
    CADRE_ASSIGN(Value order, key_of(runtime, by == "key" ? key : value, nullptr, flag(bound[0], false)));
    keys.push_back(std::move(order));
  }
  CADRE_TRY(sort_by(runtime, pairs, keys, flag(bound[2], false)));
  return runtime.budget.list(std::move(pairs));
}

Result<Value> filter_sort(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "sort", {"reverse", "case_sensitive", "attribute"}));
  CADRE_ASSIGN(List items, iterate(runtime, self));
  const Value* attribute = unless_none(bound[2]);
  const bool case_sensitive = flag(bound[1], false);
  List keys;
  if (attribute != nullptr && attribute->is(Kind::kString) && attribute->as_string().find(',') != std::string::npos) {
    // "a,b": by a, then by b
    for (const Value& item : items) {
      List parts;
      const std::string& paths = attribute->as_string();
      for (std::size_t at = 0; at <= paths.size();) {
        const std::size_t comma = std::min(paths.find(',', at), paths.size());
        const Value path = Value::string(paths.substr(at, comma - at));
        CADRE_ASSIGN(Value part, key_of(runtime, item, &path, case_sensitive));
        parts.push_back(std::move(part));
        at = comma + 1;
      }
      CADRE_ASSIGN(Value key, runtime.budget.list(std::move(parts)));
      keys.push_back(std::move(key));
    }
  } else {
    CADRE_ASSIGN(keys, keys_of(runtime, items, attribute, case_sensitive));
  }
  CADRE_TRY(sort_by(runtime, items, keys, flag(bound[0], false)));
  return runtime.budget.list(std::move(items));
}

Result<Value> filter_unique(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "unique", {"case_sensitive", "attribute"}));
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  CADRE_ASSIGN(const List keys, keys_of(runtime, items, unless_none(bound[1]), flag(bound[0], false)));
  DictObject seen;
  List out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    CADRE_TRY(runtime.budget.spend(1 + keys[i].weight() / 8));
    if (seen.find(keys[i]) != nullptr) continue;
    if (!seen.set(keys[i], Value::none())) {
      return error(Code::kInvalidArgument, "a ", type_name(keys[i]), " cannot be compared by key");
    }
    out.push_back(items[i]);
  }
  return runtime.budget.iterator(std::move(out));
}

Result<Value> filter_groupby(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "groupby", {"attribute", "default", "case_sensitive"}, 1));
  const Value* fallback = unless_none(bound[1]);
  const bool case_sensitive = flag(bound[2], false);
  CADRE_ASSIGN(List items, iterate(runtime, self));
  List keys;
  for (const Value& item : items) {
    CADRE_ASSIGN(const Value key, follow_path(runtime, item, *bound[0], fallback));
    keys.push_back(case_sensitive ? key : ignore_case(key));
  }
  List order = keys;
  CADRE_TRY(sort_by(runtime, items, keys, false));
  CADRE_TRY(sort_by(runtime, order, keys, false));
  List groups;
  for (std::size_t start = 0; start < items.size();) {
    std::size_t end = start + 1;
    while (end < items.size() && equal(order[start], order[end])) ++end;
    CADRE_ASSIGN(Value name, follow_path(runtime, items[start], *bound[0], fallback));
    CADRE_ASSIGN(Value members, runtime.budget.list(List(items.begin() + static_cast<std::ptrdiff_t>(start),
                                                         items.begin() + static_cast<std::ptrdiff_t>(end))));
    CADRE_ASSIGN(Value group, runtime.budget.tuple({std::move(name), std::move(members)}));
    group.as<SequenceObject>().grouped = true;
    groups.push_back(std::move(group));
    start = end;
  }
  return runtime.budget.list(std::move(groups));
}

Result<Value> filter_batch(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "batch", {"linecount", "fill_with"}, 1));
  CADRE_ASSIGN(const std::int64_t size, int_arg(bound[0], "batch", "linecount", 0));
  if (size < 1 || size > 1'000'000) return error(Code::kInvalidArgument, "linecount is ", size, ", want 1 to 1000000");
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  List rows;
  for (std::size_t at = 0; at < items.size(); at += static_cast<std::size_t>(size)) {
    const std::size_t end = std::min(at + static_cast<std::size_t>(size), items.size());
    List row(items.begin() + static_cast<std::ptrdiff_t>(at), items.begin() + static_cast<std::ptrdiff_t>(end));
    if (const Value* fill = unless_none(bound[1])) row.resize(static_cast<std::size_t>(size), *fill);
    CADRE_ASSIGN(Value value, runtime.budget.list(std::move(row)));
    rows.push_back(std::move(value));
  }
  return runtime.budget.iterator(std::move(rows));
}

Result<Value> filter_sum(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "sum", {"attribute", "start"}));
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is(Kind::kString)) return error(Code::kInvalidArgument, "strings cannot be summed, use join");
  for (const Value& item : items) {
    Value part = item;
    if (const Value* attribute = unless_none(bound[0])) {
      CADRE_ASSIGN(part, follow_path(runtime, item, *attribute, nullptr));
    }
    CADRE_ASSIGN(total, binary(runtime, "+", total, part));
  }
  return total;
}

Result<Value> filter_min(Runtime& runtime, const Value& self, const Args& args) {
  return extreme(runtime, self, args, "min", -1);
}

Result<Value> filter_max(Runtime& runtime, const Value& self, const Args& args) {
  return extreme(runtime, self, args, "max", 1);
}

Result<Value> filter_attr(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "attr", {"name"}, 1));
  CADRE_ASSIGN(const std::string name, string_arg(bound[0], "attr", "name"));
  if (self.is(Kind::kDict) && find_method(self, name) == nullptr) {  // attributes only, not keys
    return Value::undefined("the dict has no attribute '" + name + "'");
  }
  return get_attribute(runtime, self, name);
}

}  // namespace cadre::chat_template
