// The methods of dicts, lists and tuples that change nothing, and the table of all methods.
#include "text/chat_template/methods.h"

#include "text/chat_template/filters.h"

namespace cadre::chat_template {
namespace {

Result<Value> dict_get(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "get", {"key", "default"}, 1));
  CADRE_TRY(runtime.budget.spend(bound[0]->weight() / 16));
  const Value* found = self.as<DictObject>().find(*bound[0]);
  if (found != nullptr) return *found;
  return bound[1] != nullptr ? *bound[1] : Value::none();
}

Result<Value> dict_keys(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "keys", {}).status());
  CADRE_ASSIGN(List keys, iterate(runtime, self));
  return runtime.budget.view(std::move(keys), "dict_keys");
}

Result<Value> dict_values(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "values", {}).status());
  List values;
  for (const auto& entry : self.as<DictObject>().entries()) values.push_back(entry.second);
  return runtime.budget.view(std::move(values), "dict_values");
}

Result<Value> dict_items(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "items", {}).status());
  List items;
  for (const auto& [key, value] : self.as<DictObject>().entries()) {
    CADRE_ASSIGN(Value pair, runtime.budget.tuple({key, value}));
    items.push_back(std::move(pair));
  }
  return runtime.budget.view(std::move(items), "dict_items");
}

// A copy of what cannot change is the thing itself.
Result<Value> copy(Runtime&, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "copy", {}).status());
  return self;
}

Result<Value> list_count(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "count", {"value"}, 1));
  std::int64_t count = 0;
  for (const Value& item : self.items()) {
    CADRE_ASSIGN(const bool same, equal_checked(runtime, item, *bound[0]));
    count += same ? 1 : 0;
  }
  return Value::integer(count);
}

Result<Value> list_index(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "index", {"value"}, 1));
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    CADRE_ASSIGN(const bool same, equal_checked(runtime, self.items()[i], *bound[0]));
    if (same) return Value::integer(static_cast<std::int64_t>(i));
  }
  return error(Code::kInvalidArgument, "the value looked for with index() is not in the list");
}

constexpr NamedNative kDictMethods[] = {
    {"copy", copy}, {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}};
constexpr NamedNative kListMethods[] = {{"copy", copy}, {"count", list_count}, {"index", list_index}};
constexpr NamedNative kTupleMethods[] = {{"count", list_count}, {"index", list_index}};

}  // namespace

Native find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kDict:
      return find_native(kDictMethods, name);
    case Kind::kList:
      return find_native(kListMethods, name);
    case Kind::kTuple:
      return find_native(kTupleMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace cadre::chat_template
