// map, select, reject, selectattr, rejectattr: filters that apply another filter or test to each element.
#include "text/chat_template/filters.h"

namespace cadre::chat_template {
namespace {

// The arguments after the first `skip` positional ones.
Args rest_of(const Args& args, std::size_t skip) {
  Args rest;
  for (std::size_t i = skip; i < args.positional.size(); ++i) rest.positional.push_back(args.positional[i]);
  rest.named = args.named;
  return rest;
}

Result<Value> pick(Runtime& runtime, const Value& self, const Args& args, const char* name, bool by_attribute,
                   bool wanted) {
  if (!truth(self)) return runtime.budget.iterator({});  // none counts as an empty list here
  const std::size_t test_at = by_attribute ? 1 : 0;
  if (args.positional.size() < test_at) return error(Code::kInvalidArgument, name, "() misses the attribute's name");
  Native test = nullptr;
  if (args.positional.size() > test_at) {
    CADRE_ASSIGN(const std::string test_name, string_arg(&args.positional[test_at], name, "test"));
    test = find_test(test_name);
    if (test == nullptr) return error(Code::kUnsupported, "there is no test '", test_name, "'");
  }
  const Args rest = rest_of(args, test_at + 1);
  CADRE_ASSIGN(const List items, iterate(runtime, self));
  List out;
  for (const Value& item : items) {
    CADRE_TRY(runtime.budget.spend(2));
    Value value = item;
    if (by_attribute) {
      CADRE_ASSIGN(value, follow_path(runtime, item, args.positional[0], nullptr));
    }
    bool holds = truth(value);
    if (test != nullptr) {
      CADRE_ASSIGN(const Value tested, test(runtime, value, rest));
      holds = truth(tested);
    }
    if (holds == wanted) out.push_back(item);
  }
  return runtime.budget.iterator(std::move(out));
}

}  // namespace

Result<Value> filter_map(Runtime& runtime, const Value& self, const Args& args) {
  if (!truth(self)) return runtime.budget.iterator({});
  const Value* attribute = nullptr;
  const Value* fallback = nullptr;
  if (args.positional.empty()) {
    CADRE_ASSIGN(const Bound bound, bind(args, "map", {"attribute", "default"}, 1));
    attribute = bound[0];
    fallback = bound[1];
  }
  Native filter = nullptr;
  if (attribute == nullptr) {
    CADRE_ASSIGN(const std::string name, string_arg(&args.positional[0], "map", "filter"));
    filter = find_filter(name);
    if (filter == nullptr) return error(Code::kUnsupported, "there is no filter '", name, "'");
  }
  const Args rest = rest_of(args, 1);
  CADRE_ASSIGN(List items, iterate(runtime, self));
  for (Value& item : items) {
    CADRE_TRY(runtime.budget.spend(2));
    CADRE_ASSIGN(item,
                 attribute != nullptr ? follow_path(runtime, item, *attribute, fallback) : filter(runtime, item, rest));
  }
  return runtime.budget.iterator(std::move(items));
}

Result<Value> filter_select(Runtime& runtime, const Value& self, const Args& args) {
  return pick(runtime, self, args, "select", false, true);
}

Result<Value> filter_reject(Runtime& runtime, const Value& self, const Args& args) {
  return pick(runtime, self, args, "reject", false, false);
}

Result<Value> filter_selectattr(Runtime& runtime, const Value& self, const Args& args) {
  return pick(runtime, self, args, "selectattr", true, true);
}

Result<Value> filter_rejectattr(Runtime& runtime, const Value& self, const Args& args) {
  return pick(runtime, self, args, "rejectattr", true, false);
}

}  // namespace cadre::chat_template
