// The tests after `is`.
#include "text/chat_template/filters.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

// A test without arguments, by what it asks of the value.
template <bool (*Holds)(const Value&)>
Result<Value> plain(Runtime&, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "a test", {}).status());
  return Value::boolean(Holds(self));
}

bool is_defined(const Value& v) { return !v.is(Kind::kUndefined); }
bool is_undefined(const Value& v) { return v.is(Kind::kUndefined); }
bool is_none(const Value& v) { return v.is(Kind::kNone); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is(Kind::kString); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_callable(const Value& v) { return v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kUndefined); }
bool never(const Value&) { return false; }

// As Python finds them: what has a length and takes an index, dicts and undefined values included.
bool is_sequence(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return true;
    case Kind::kView:
      return !v.as<ViewObject>().repr.empty();
    default:
      return false;
  }
}

bool is_iterable(const Value& v) {
  return is_sequence(v) || v.is(Kind::kView) || v.is(Kind::kIterator) || v.is(Kind::kLoop);
}

Result<Value> remainder_is(Runtime& runtime, const Value& self, const Value& divisor, std::int64_t wanted) {
  CADRE_ASSIGN(const Value rest, binary(runtime, "%", self, divisor));
  return Value::boolean(equal(rest, Value::integer(wanted)));
}

Result<Value> odd(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "odd", {}).status());
  return remainder_is(runtime, self, Value::integer(2), 1);
}

Result<Value> even(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "even", {}).status());
  return remainder_is(runtime, self, Value::integer(2), 0);
}

Result<Value> divisible(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "divisibleby", {"num"}, 1));
  return remainder_is(runtime, self, *bound[0], 0);
}

// Whether the text has letters with case, all of the wanted one.
Result<Value> cased(Runtime& runtime, const Value& self, const Args& args, bool upper) {
  CADRE_TRY(bind(args, upper ? "upper" : "lower", {}).status());
  CADRE_ASSIGN(const std::string text, to_str(runtime, self));
  CADRE_TRY(runtime.budget.spend(text.size() / 16));
  bool any = false;
  for (std::size_t at = 0; at < text.size(); at += code_point_size(text, at)) {
    const char32_t c = code_point_at(text, at);
    if (upper ? is_lower(c) : is_upper(c)) return Value::boolean(false);
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return Value::boolean(any);
}

Result<Value> lower(Runtime& runtime, const Value& self, const Args& args) { return cased(runtime, self, args, false); }
Result<Value> upper(Runtime& runtime, const Value& self, const Args& args) { return cased(runtime, self, args, true); }

template <bool Same>
Result<Value> equality(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "equalto", {"other"}, 1));
  CADRE_ASSIGN(const bool same, equal_checked(runtime, self, *bound[0]));
  return Value::boolean(same == Same);
}

// Sign: the wanted order; OrEqual: equal will do.
template <int Sign, bool OrEqual>
Result<Value> ordering(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "a comparison", {"other"}, 1));
  CADRE_ASSIGN(const int order, compare(runtime, self, *bound[0]));
  return Value::boolean(order == Sign || (OrEqual && order == 0));
}

Result<Value> in(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "in", {"seq"}, 1));
  CADRE_ASSIGN(const bool found, contains(runtime, *bound[0], self));
  return Value::boolean(found);
}

Result<Value> same_as(Runtime&, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "sameas", {"other"}, 1));
  const Value& other = *bound[0];
  if (self.kind() != other.kind()) return Value::boolean(false);
  if (self.identity() != nullptr) return Value::boolean(self.identity() == other.identity());
  return Value::boolean(equal(self, other));
}

Result<Value> is_filter(Runtime&, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "filter", {}).status());
  return Value::boolean(self.is(Kind::kString) && find_filter(self.as_string()) != nullptr);
}

Result<Value> is_test(Runtime&, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "test", {}).status());
  return Value::boolean(self.is(Kind::kString) && find_test(self.as_string()) != nullptr);
}

constexpr NamedNative kTests[] = {
    {"!=", equality<false>},
    {"<", ordering<-1, false>},
    {"<=", ordering<-1, true>},
    {"==", equality<true>},
    {">", ordering<1, false>},
    {">=", ordering<1, true>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible},
    {"eq", equality<true>},
    {"equalto", equality<true>},
    {"escaped", plain<never>},
    {"even", even},
    {"false", plain<is_false>},
    {"filter", is_filter},
    {"float", plain<is_float>},
    {"ge", ordering<1, true>},
    {"greaterthan", ordering<1, false>},
    {"gt", ordering<1, false>},
    {"in", in},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", ordering<-1, true>},
    {"lessthan", ordering<-1, false>},
    {"lower", lower},
    {"lt", ordering<-1, false>},
    {"mapping", plain<is_mapping>},
    {"ne", equality<false>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", odd},
    {"sameas", same_as},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", is_test},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", upper},
};

}  // namespace

Native find_test(std::string_view name) { return find_native(kTests, name); }

}  // namespace cadre::chat_template
