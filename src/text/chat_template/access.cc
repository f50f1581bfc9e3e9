// object.name, object[key] and slices.
#include <algorithm>
#include <optional>

#include "text/chat_template/loop.h"
#include "text/chat_template/runtime.h"
#include "text/chat_template/unicode.h"

namespace cadre::chat_template {
namespace {

Value missing(const Value& object, std::string_view what) {
  return Value::undefined("the " + std::string(type_name(object)) + " has no key or attribute '" + std::string(what) +
                          "'");
}

// Names that Python offers and the immutable sandbox forbids.
bool modifies(const Value& object, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is(Kind::kList)) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (object.is(Kind::kDict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

// A method of the object, or another attribute that is not a key.
std::optional<Result<Value>> attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (modifies(object, name)) {
    return Result<Value>(Value::undefined(std::string(type_name(object)) + "." + name +
                                          " changes its object, which a chat template may not; use a namespace or make"
                                          " a new value"));
  }
  if (const Native native = find_method(object, name)) {
    auto method = std::make_shared<FunctionObject>();
    if (Status status = runtime.budget.admit(*method, {object}); !status.ok()) return Result<Value>(std::move(status));
    method->name = name;
    method->native = native;
    method->self = object;
    return Result<Value>(Value::object(Kind::kFunction, std::move(method)));
  }
  if (object.is(Kind::kLoop)) return loop_attribute(runtime, object, name);
  if (object.is(Kind::kNamespace)) {
    const Value* found = object.as<NamespaceObject>().attributes.find(name);
    if (found != nullptr) return Result<Value>(*found);
  }
  if (object.is(Kind::kTuple) && object.as<SequenceObject>().grouped) {
    if (name == "grouper") return Result<Value>(object.items()[0]);
    if (name == "list") return Result<Value>(object.items()[1]);
  }
  return std::nullopt;
}

// An index from the end where negative; nothing where outside.
std::optional<std::size_t> index_in(std::int64_t index, std::size_t size) {
  const auto n = static_cast<std::int64_t>(size);
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Result<Value> string_item(Runtime& runtime, const Value& object, std::int64_t index) {
  const std::string& text = object.as_string();
  CADRE_TRY(runtime.budget.spend(text.size() / 64));
  const auto at = index_in(index, code_point_count(text));
  if (!at) return missing(object, std::to_string(index));
  std::size_t byte = 0;
  for (std::size_t i = 0; i < *at; ++i) byte += code_point_size(text, byte);
  return runtime.budget.string(text.substr(byte, code_point_size(text, byte)));
}

struct SliceRange {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::size_t count = 0;
};

// Python's slice.indices().
Result<SliceRange> slice_range(std::size_t size, const Value& start, const Value& stop, const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->is(Kind::kNone) && !part->is_integral()) {
      return error(Code::kInvalidArgument, "a slice wants integers or none, got ", type_name(*part));
    }
  }
  const auto n = static_cast<std::int64_t>(size);
  SliceRange out;
  out.step = step.is(Kind::kNone) ? 1 : step.as_int();
  if (out.step == 0) return error(Code::kInvalidArgument, "the step of a slice is 0");
  const bool forward = out.step > 0;
  // A step past either end takes one element whatever its size; the bound keeps the sums below from overflowing.
  out.step = std::clamp<std::int64_t>(out.step, -n - 1, n + 1);
  const auto bound = [&](const Value& part, std::int64_t fallback) {
    if (part.is(Kind::kNone)) return fallback;
    std::int64_t at = part.as_int();
    if (at < 0) at = at < -n ? -1 : at + n;
    return std::clamp<std::int64_t>(at, forward ? 0 : -1, forward ? n : n - 1);
  };
  out.start = bound(start, forward ? 0 : n - 1);
  const std::int64_t end = bound(stop, forward ? n : -1);
  const std::int64_t span = forward ? end - out.start : out.start - end;
  const std::int64_t stride = forward ? out.step : -out.step;
  if (span > 0) out.count = static_cast<std::size_t>((span + stride - 1) / stride);
  return out;
}

}  // namespace

Result<Value> get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (object.is(Kind::kUndefined)) {
    return error(Code::kInvalidArgument, object.undefined_reason(), ", so it has no attribute '", name, "'");
  }
  if (auto found = attribute(runtime, object, name)) return *std::move(found);
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.as<DictObject>().find(name)) return *value;
  }
  return missing(object, name);
}

Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) {
    return error(Code::kInvalidArgument, object.undefined_reason(), ", so it has no items");
  }
  if (object.is(Kind::kDict)) {
    CADRE_TRY(runtime.budget.spend(key.weight() / 16));
    if (const Value* value = object.as<DictObject>().find(key)) return *value;
  } else if (key.is_integral()) {
    const std::int64_t index = key.as_int();
    if (object.is(Kind::kString)) return string_item(runtime, object, index);
    const bool indexed = object.is(Kind::kList) || object.is(Kind::kTuple) ||
                         (object.is(Kind::kView) && !object.as<ViewObject>().repr.empty());
    if (indexed) {
      if (const auto at = index_in(index, object.items().size())) return object.items()[*at];
    }
    return missing(object, std::to_string(index));
  }
  if (!key.is(Kind::kString)) return missing(object, type_name(key));
  if (auto found = attribute(runtime, object, key.as_string())) return *std::move(found);
  return missing(object, key.as_string());
}

Result<Value> get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                        const Value& step) {
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (object.is(Kind::kString)) {
    const std::string& text = object.as_string();
    CADRE_TRY(runtime.budget.spend(text.size() / 16));
    const std::vector<std::string_view> points = code_points(text);
    CADRE_ASSIGN(const SliceRange range, slice_range(points.size(), start, stop, step));
    std::string out;
    for (std::size_t i = 0; i < range.count; ++i) {
      out += points[static_cast<std::size_t>(range.start + static_cast<std::int64_t>(i) * range.step)];
    }
    return runtime.budget.string(std::move(out));
  }
  const bool sliced = object.is(Kind::kList) || object.is(Kind::kTuple) ||
                      (object.is(Kind::kView) && !object.as<ViewObject>().repr.empty());
  if (object.is(Kind::kDict)) return error(Code::kInvalidArgument, "a dict cannot be sliced");
  if (!sliced) return missing(object, "[slice]");
  const List& items = object.items();
  CADRE_ASSIGN(const SliceRange range, slice_range(items.size(), start, stop, step));
  List out;
  out.reserve(range.count);
  for (std::size_t i = 0; i < range.count; ++i) {
    out.push_back(items[static_cast<std::size_t>(range.start + static_cast<std::int64_t>(i) * range.step)]);
  }
  return object.is(Kind::kTuple) ? runtime.budget.tuple(std::move(out)) : runtime.budget.list(std::move(out));
}

}  // namespace cadre::chat_template
