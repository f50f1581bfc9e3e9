// What every native function of the interpreter works with: the budget of one rendering, arguments, and calls back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/value.h"

namespace cadre::chat_template {

// Counts what one rendering spends; everything of a size that a template or a conversation decides goes through it.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}

  const RenderLimits& limits() const { return limits_; }
  Status spend(std::uint64_t steps);
  // Before looking for `part` in `text`, which can take the product of their sizes.
  Status spend_search(std::string_view text, std::string_view part);
  // Before making `bytes` of text: fails where that is more than one string may have, or all together.
  Status reserve_text(std::uint64_t bytes);

  // Before keeping `bytes` of anything to the end of the rendering.
  Status reserve_memory(std::uint64_t bytes);

  Result<Value> string(std::string text);
  Result<Value> list(List items) { return sequence(Kind::kList, std::move(items)); }
  Result<Value> tuple(List items) { return sequence(Kind::kTuple, std::move(items)); }
  Result<Value> view(List items, const char* type, std::string repr = {});
  Result<Value> iterator(List items);
  Result<Value> dict(std::shared_ptr<DictObject> dict);
  // Counts and checks what an object made elsewhere holds.
  Status admit(Object& object, const List& held);

 private:
  Result<Value> sequence(Kind kind, List items);

  const RenderLimits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
};

struct Args {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by parameter; null where one is not given.
using Bound = std::vector<const Value*>;
Result<Bound> bind(const Args& args, std::string_view callee, std::initializer_list<std::string_view> parameters,
                   std::size_t required = 0);

class Runtime {
 public:
  Runtime(const RenderLimits& limits, std::int64_t now_seconds) : budget(limits), now(now_seconds) {}
  virtual ~Runtime() = default;
  virtual Result<Value> call(const Value& callee, const Args& args) = 0;

  Budget budget;
  const std::int64_t now;  // seconds since 1970 of strftime_now
  // Every namespace made: they can come to hold each other, so the rendering empties them at its end.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces;
};

// A method, filter, test or global; `self` is the object, the filtered or the tested value.
using Native = Result<Value> (*)(Runtime&, const Value& self, const Args& args);

struct FunctionObject : Object {
  std::string name;
  Native native = nullptr;
  Value self;
};

Native find_filter(std::string_view name);
Native find_test(std::string_view name);
Native find_global(std::string_view name);
// A method of the type of `self`.
Native find_method(const Value& self, std::string_view name);

// The elements of anything that can be walked. An iterator is used up by it.
Result<List> iterate(Runtime& runtime, const Value& value);
// `value` in Python's str() and repr(), appended.
Status append_str(Runtime& runtime, const Value& value, std::string& out);
Status append_repr(Runtime& runtime, const Value& value, std::string& out);
Result<std::string> to_str(Runtime& runtime, const Value& value);
// The shortest text that reads back as `value`, as Python writes it.
std::string real_repr(double value);

// object.name and object[key]; undefined where there is none.
Result<Value> get_attribute(Runtime& runtime, const Value& object, const std::string& name);
Result<Value> get_item(Runtime& runtime, const Value& object, const Value& key);
Result<Value> get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                        const Value& step);

// a op b for + - * / // % **
Result<Value> binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b);
// Python's ordering; an error where the types have none. Negative, 0 or positive; NaN compares as 2.
Result<int> compare(Runtime& runtime, const Value& a, const Value& b);
// `item in container`
Result<bool> contains(Runtime& runtime, const Value& container, const Value& item);
Result<bool> equal_checked(Runtime& runtime, const Value& a, const Value& b);

// "text" % args and "text".format(args).
Result<Value> percent_format(Runtime& runtime, const std::string& format, const Value& args);
Result<Value> brace_format(Runtime& runtime, const std::string& format, const Args& args);

// An integer argument, `fallback` where it is not given.
Result<std::int64_t> int_arg(const Value* value, std::string_view callee, std::string_view name, std::int64_t fallback);
Result<std::string> string_arg(const Value* value, std::string_view callee, std::string_view name,
                               std::string_view fallback = {});

// What an undefined value says where it is used.
Status undefined_error(const Value& value);

}  // namespace cadre::chat_template
