#include "text/chat_template/loop.h"

namespace cadre::chat_template {
namespace {

Result<Value> cycle(Runtime&, const Value& self, const Args& args) {
  if (args.positional.empty()) return error(Code::kInvalidArgument, "loop.cycle() wants at least one value");
  const auto at = static_cast<std::size_t>(self.as<LoopObject>().index - 1) % args.positional.size();
  return args.positional[at];
}

// Kept as text, so that a loop never holds a value that holds the loop.
Result<Value> changed(Runtime& runtime, const Value& self, const Args& args) {
  std::string now;
  for (const Value& value : args.positional) {
    CADRE_TRY(append_repr(runtime, value, now));
    now += ',';
  }
  CADRE_TRY(runtime.budget.reserve_text(now.size()));
  auto& loop = self.as<LoopObject>();
  const bool differs = loop.changed != now;
  loop.changed = std::move(now);
  return Value::boolean(differs);
}

Result<Value> method(Runtime& runtime, const Value& loop, const char* name, Native native) {
  auto function = std::make_shared<FunctionObject>();
  CADRE_TRY(runtime.budget.admit(*function, {loop}));
  function->name = name;
  function->native = native;
  function->self = loop;
  return Value::object(Kind::kFunction, std::move(function));
}

Result<Value> element_after(LoopObject& loop) {
  CADRE_TRY(loop.look_ahead(1));
  if (loop.ahead.empty()) return Value::undefined("the loop has no next item");
  return loop.ahead.front();
}

Result<Value> remaining(LoopObject& loop) {
  CADRE_TRY(loop.look_ahead(loop.items.size()));
  return Value::integer(static_cast<std::int64_t>(loop.ahead.size()));
}

}  // namespace

Status LoopObject::look_ahead(std::size_t count) {
  while (ahead.size() < count && cursor < items.size()) {
    const Value& candidate = items[cursor++];
    if (condition) {
      CADRE_ASSIGN(const bool kept, condition(candidate));
      if (!kept) continue;
    }
    ahead.push_back(candidate);
  }
  return {};
}

Result<bool> LoopObject::advance() {
  CADRE_TRY(look_ahead(1));
  previous = std::move(current);
  current.reset();
  if (ahead.empty()) return false;
  current = std::move(ahead.front());
  ahead.pop_front();
  ++index;
  return true;
}

std::optional<Result<Value>> loop_attribute(Runtime& runtime, const Value& value, const std::string& name) {
  auto& loop = value.as<LoopObject>();
  if (name == "index") return Result<Value>(Value::integer(loop.index));
  if (name == "index0") return Result<Value>(Value::integer(loop.index - 1));
  if (name == "first") return Result<Value>(Value::boolean(loop.index == 1));
  if (name == "depth") return Result<Value>(Value::integer(loop.nesting));
  if (name == "depth0") return Result<Value>(Value::integer(loop.nesting - 1));
  if (name == "cycle") return method(runtime, value, "cycle", cycle);
  if (name == "changed") return method(runtime, value, "changed", changed);
  if (name == "previtem") {
    if (!loop.previous) return Result<Value>(Value::undefined("the loop has no previous item"));
    return Result<Value>(*loop.previous);
  }
  if (name == "nextitem") return element_after(loop);
  if (name == "last") {
    if (Status status = loop.look_ahead(1); !status.ok()) return Result<Value>(std::move(status));
    return Result<Value>(Value::boolean(loop.ahead.empty()));
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    auto left = remaining(loop);
    if (!left.ok()) return left;
    const std::int64_t after = left->as_int();
    return Result<Value>(Value::integer(name == "length"     ? loop.index + after
                                        : name == "revindex" ? after + 1
                                                             : after));
  }
  return std::nullopt;
}

}  // namespace cadre::chat_template
