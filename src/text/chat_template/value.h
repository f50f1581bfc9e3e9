// The values a chat template computes with: Python's, as far as templates can see them. Values are immutable once made
// (as in Jinja2's immutable sandbox); only namespaces change, by `{% set ns.x = ... %}`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cadre::chat_template {

enum class Kind : std::uint8_t {
  kUndefined,  // a missing name or key: prints as nothing, false, and an error to look into
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kIterator,  // what map, select, reverse, ... return: can be walked once, has no length
  kView,      // dict.items(), dict.keys(), dict.values() and range(): can be walked often, has a length
  kFunction,  // a global or a method bound to its object
  kMacro,
  kLoop,  // the variable `loop`
};

// Containers may not nest deeper than this, which also bounds every recursion over a value.
inline constexpr int kMaxValueDepth = 100;
// Nor hold more than this, counted as a tree: values that share parts would otherwise take exponential time to walk.
inline constexpr std::uint64_t kMaxValueWeight = std::uint64_t{1} << 22;

struct Object {
  virtual ~Object() = default;
  int depth = 0;             // of nesting below; 0 for what holds no value
  std::uint64_t weight = 1;  // values below as a tree, a string counting one more for each 64 bytes
};

class Value;
using List = std::vector<Value>;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  // Unlike Budget::string, not counted against a rendering's limits: for text whose size is bounded otherwise.
  static Value string(std::string text);
  static Value undefined(std::string what);  // `what` explains a later use, e.g. "'foo' is not defined"
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }

  bool as_bool() const { return int_ != 0; }
  std::int64_t as_int() const { return int_; }  // of kBool and kInt
  double as_real() const { return is(Kind::kFloat) ? real_ : static_cast<double>(int_); }
  const std::string& as_string() const;
  const std::string& undefined_reason() const;
  // The elements of a list, tuple or view.
  const List& items() const;
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  const Object* identity() const { return object_.get(); }
  int depth() const { return object_ ? object_->depth : 0; }
  std::uint64_t weight() const { return object_ ? object_->weight : 1; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t int_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  std::string text;
};

struct SequenceObject : Object {
  List items;
  bool grouped = false;  // a (grouper, list) pair of the filter groupby
};

struct ViewObject : SequenceObject {
  std::string repr;  // "range(0, 3)"; empty for the views of a dict
  const char* type = "";
};

struct IteratorObject : Object {
  List items;
  bool used = false;
};

// In insertion order, with an index by key.
class DictObject : public Object {
 public:
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  // Null where there is none; also for keys that cannot be keys.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // False where `key` cannot be a key (Python: unhashable).
  bool set(const Value& key, Value value);

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

struct NamespaceObject : Object {
  DictObject attributes;
};

// "str", "dict", ...: Python's name of the type, for messages.
const char* type_name(const Value& value);
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// Text by which equal keys are equal; false where the value cannot be a key.
bool hash_key(const Value& value, std::string& out);

}  // namespace cadre::chat_template
