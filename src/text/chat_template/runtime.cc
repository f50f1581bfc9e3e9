#include "text/chat_template/runtime.h"

#include <algorithm>

#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

// A value in its container and the object it may point to.
constexpr std::uint64_t kBytesPerElement = 96;

}  // namespace

Status Budget::spend(std::uint64_t steps) {
  steps_ += std::min(steps, limits_.max_steps + 1);
  if (steps_ <= limits_.max_steps) return {};
  return error(Code::kLimitExceeded, "the template takes more than ", limits_.max_steps, " steps");
}

Status Budget::spend_search(std::string_view text, std::string_view part) {
  return spend(text.size() / 16 + static_cast<std::uint64_t>(text.size()) * part.size() / 256);
}

Status Budget::reserve_text(std::uint64_t bytes) {
  if (bytes > limits_.max_string) {
    return error(Code::kLimitExceeded, "a string of ", bytes, " bytes is over the limit of ", limits_.max_string);
  }
  CADRE_TRY(reserve_memory(bytes));
  return spend(bytes / 64);
}

Status Budget::reserve_memory(std::uint64_t bytes) {
  bytes_ += std::min<std::uint64_t>(bytes, limits_.max_memory + 1);
  if (bytes_ <= limits_.max_memory) return {};
  return error(Code::kLimitExceeded, "the template makes more than ", limits_.max_memory, " bytes of values");
}

Result<Value> Budget::string(std::string text) {
  CADRE_TRY(reserve_text(text.size()));
  return Value::string(std::move(text));
}

Status Budget::admit(Object& object, const List& held) {
  CADRE_TRY(reserve_memory(held.size() * kBytesPerElement));
  for (const Value& value : held) {
    object.depth = std::max(object.depth, value.depth() + 1);
    object.weight += value.weight();
    if (object.weight > kMaxValueWeight) {
      return error(Code::kLimitExceeded, "a value holds more than ", kMaxValueWeight, " parts");
    }
  }
  if (object.depth > kMaxValueDepth) {
    return error(Code::kLimitExceeded, "a value nests deeper than ", kMaxValueDepth, " levels");
  }
  return spend(held.size());
}

Result<Value> Budget::sequence(Kind kind, List items) {
  auto object = std::make_shared<SequenceObject>();
  CADRE_TRY(admit(*object, items));
  object->items = std::move(items);
  return Value::object(kind, std::move(object));
}

Result<Value> Budget::view(List items, const char* type, std::string repr) {
  auto object = std::make_shared<ViewObject>();
  CADRE_TRY(admit(*object, items));
  object->items = std::move(items);
  object->type = type;
  object->repr = std::move(repr);
  return Value::object(Kind::kView, std::move(object));
}

Result<Value> Budget::iterator(List items) {
  auto object = std::make_shared<IteratorObject>();
  CADRE_TRY(admit(*object, items));
  object->items = std::move(items);
  return Value::object(Kind::kIterator, std::move(object));
}

Result<Value> Budget::dict(std::shared_ptr<DictObject> dict) {
  List held;
  held.reserve(2 * dict->entries().size());
  for (const auto& [key, value] : dict->entries()) {
    held.push_back(key);
    held.push_back(value);
  }
  CADRE_TRY(admit(*dict, held));
  return Value::object(Kind::kDict, std::move(dict));
}

Result<Bound> bind(const Args& args, std::string_view callee, std::initializer_list<std::string_view> parameters,
                   std::size_t required) {
  if (args.positional.size() > parameters.size()) {
    return error(Code::kInvalidArgument, callee, "() takes at most ", parameters.size(), " arguments, got ",
                 args.positional.size());
  }
  Bound bound(parameters.size(), nullptr);
  for (std::size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) {
      return error(Code::kInvalidArgument, callee, "() takes no keyword argument '", name, "'");
    }
    const auto at = static_cast<std::size_t>(it - parameters.begin());
    if (bound[at] != nullptr) return error(Code::kInvalidArgument, callee, "() got two values for '", name, "'");
    bound[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return error(Code::kInvalidArgument, callee, "() misses its argument '", parameters.begin()[i], "'");
    }
  }
  return bound;
}

Result<List> iterate(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return List{};
    case Kind::kString: {
      const std::string& text = value.as_string();
      CADRE_TRY(runtime.budget.spend(text.size()));
      CADRE_TRY(runtime.budget.reserve_text(text.size()));
      List out;
      for (std::string_view c : code_points(text)) out.push_back(Value::string(std::string(c)));
      return out;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      CADRE_TRY(runtime.budget.spend(value.items().size()));
      return value.items();
    case Kind::kDict: {
      const auto& entries = value.as<DictObject>().entries();
      CADRE_TRY(runtime.budget.spend(entries.size()));
      List out;
      out.reserve(entries.size());
      for (const auto& entry : entries) out.push_back(entry.first);
      return out;
    }
    case Kind::kIterator: {
      auto& iterator = value.as<IteratorObject>();
      if (iterator.used) return List{};
      iterator.used = true;
      CADRE_TRY(runtime.budget.spend(iterator.items.size()));
      return std::move(iterator.items);
    }
    default:
      return error(Code::kInvalidArgument, "a value of type ", type_name(value), " cannot be walked");
  }
}

Result<std::int64_t> int_arg(const Value* value, std::string_view callee, std::string_view name,
                             std::int64_t fallback) {
  if (value == nullptr) return fallback;
  if (value->is_integral()) return value->as_int();
  return error(Code::kInvalidArgument, callee, "() wants an integer as '", name, "', got ", type_name(*value));
}

Result<std::string> string_arg(const Value* value, std::string_view callee, std::string_view name,
                               std::string_view fallback) {
  if (value == nullptr) return std::string(fallback);
  if (value->is(Kind::kString)) return value->as_string();
  return error(Code::kInvalidArgument, callee, "() wants a string as '", name, "', got ", type_name(*value));
}

Status undefined_error(const Value& value) { return Status(Code::kInvalidArgument, value.undefined_reason()); }

}  // namespace cadre::chat_template
