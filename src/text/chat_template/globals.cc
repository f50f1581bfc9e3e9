// Functions every template can call.
#include <array>

#include "text/chat_template/clock.h"
#include "text/chat_template/filters.h"

namespace cadre::chat_template {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as in Jinja2's sandbox

Result<Value> raise_exception(Runtime& runtime, const Value&, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "raise_exception", {"message"}, 1));
  CADRE_ASSIGN(std::string message, to_str(runtime, *bound[0]));
  return Status(Code::kInvalidArgument, std::move(message));
}

Result<Value> strftime_now(Runtime& runtime, const Value&, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "strftime_now", {"format"}, 1));
  CADRE_ASSIGN(const std::string format, string_arg(bound[0], "strftime_now", "format"));
  CADRE_TRY(runtime.budget.spend(format.size()));
  CADRE_ASSIGN(std::string text, format_time(runtime.now, format));
  return runtime.budget.string(std::move(text));
}

Result<Value> range(Runtime& runtime, const Value&, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "range", {"start", "stop", "step"}, 1));
  if (!args.named.empty()) return error(Code::kInvalidArgument, "range() takes no keyword arguments");
  CADRE_ASSIGN(std::int64_t start, int_arg(bound[0], "range", "start", 0));
  CADRE_ASSIGN(std::int64_t stop, int_arg(bound[1], "range", "stop", 0));
  CADRE_ASSIGN(const std::int64_t step, int_arg(bound[2], "range", "step", 1));
  if (bound[1] == nullptr) {
    stop = start;
    start = 0;
  }
  if (step == 0) return error(Code::kInvalidArgument, "the step of range() is 0");
  List items;
  for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) >= kMaxRange) {
      return error(Code::kLimitExceeded, "range() has more than ", kMaxRange, " items");
    }
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  std::string repr = "range(" + std::to_string(start) + ", " + std::to_string(stop);
  if (step != 1) repr += ", " + std::to_string(step);
  return runtime.budget.view(std::move(items), "range", repr + ")");
}

// The entries of a dict() or namespace() call: a dict or pairs, then keywords.
Status fill(Runtime& runtime, const Args& args, const char* name, DictObject& out) {
  if (args.positional.size() > 1) return error(Code::kInvalidArgument, name, "() takes at most 1 positional argument");
  const auto set = [&](const Value& key, const Value& value) -> Status {
    CADRE_TRY(runtime.budget.spend(1 + key.weight() / 8));
    if (out.set(key, value)) return {};
    return error(Code::kInvalidArgument, "a ", type_name(key), " cannot be a key");
  };
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.as<DictObject>().entries()) CADRE_TRY(set(key, value));
    } else {
      CADRE_ASSIGN(const List pairs, iterate(runtime, source));
      for (const Value& pair : pairs) {
        CADRE_ASSIGN(const List parts, iterate(runtime, pair));
        if (parts.size() != 2)
          return error(Code::kInvalidArgument, name, "() wants pairs, got ", parts.size(), " parts");
        CADRE_TRY(set(parts[0], parts[1]));
      }
    }
  }
  for (const auto& [key, value] : args.named) CADRE_TRY(set(Value::string(key), value));
  return {};
}

Result<Value> make_dict(Runtime& runtime, const Value&, const Args& args) {
  auto dict = std::make_shared<DictObject>();
  CADRE_TRY(fill(runtime, args, "dict", *dict));
  return runtime.budget.dict(std::move(dict));
}

Result<Value> make_namespace(Runtime& runtime, const Value&, const Args& args) {
  auto space = std::make_shared<NamespaceObject>();
  CADRE_TRY(fill(runtime, args, "namespace", space->attributes));
  CADRE_TRY(runtime.budget.reserve_memory(512 + 96 * space->attributes.entries().size()));
  runtime.namespaces.push_back(space);
  return Value::object(Kind::kNamespace, std::move(space));
}

// joiner(): nothing at its first call, the separator at all others.
struct JoinerObject : Object {
  std::string separator;
  bool used = false;
};

Result<Value> call_joiner(Runtime& runtime, const Value& self, const Args& args) {
  CADRE_TRY(bind(args, "joiner", {}).status());
  auto& state = self.as<JoinerObject>();
  if (!std::exchange(state.used, true)) return Value::string("");
  return runtime.budget.string(state.separator);
}

Result<Value> make_joiner(Runtime& runtime, const Value&, const Args& args) {
  CADRE_ASSIGN(const Bound bound, bind(args, "joiner", {"sep"}));
  auto state = std::make_shared<JoinerObject>();
  CADRE_ASSIGN(state->separator, string_arg(bound[0], "joiner", "sep", ", "));
  CADRE_TRY(runtime.budget.reserve_memory(512));
  auto function = std::make_shared<FunctionObject>();
  function->name = "joiner";
  function->native = call_joiner;
  function->self = Value::object(Kind::kFunction, std::move(state));
  return Value::object(Kind::kFunction, std::move(function));
}

constexpr NamedNative kGlobals[] = {
    {"dict", make_dict},
    {"joiner", make_joiner},
    {"namespace", make_namespace},
    {"range", range},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Native find_global(std::string_view name) {
  for (const NamedNative& entry : kGlobals) {
    if (entry.name == name) return entry.native;
  }
  return nullptr;
}

}  // namespace cadre::chat_template
