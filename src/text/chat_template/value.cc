#include "text/chat_template/value.h"

#include <cmath>

namespace cadre::chat_template {

Value Value::boolean(bool value) {
  Value v(Kind::kBool);
  v.int_ = value ? 1 : 0;
  return v;
}

Value Value::integer(std::int64_t value) {
  Value v(Kind::kInt);
  v.int_ = value;
  return v;
}

Value Value::real(double value) {
  Value v(Kind::kFloat);
  v.real_ = value;
  return v;
}

Value Value::string(std::string text) {
  auto object = std::make_shared<StringObject>();
  object->weight = 1 + text.size() / 64;
  object->text = std::move(text);
  return Value::object(Kind::kString, std::move(object));
}

Value Value::undefined(std::string what) {
  Value v = Value::string(std::move(what));
  v.kind_ = Kind::kUndefined;
  return v;
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value v(kind);
  v.object_ = std::move(object);
  return v;
}

const std::string& Value::as_string() const { return as<StringObject>().text; }

const std::string& Value::undefined_reason() const {
  static const std::string kPlain = "the value is undefined";
  return object_ ? as<StringObject>().text : kPlain;
}

const List& Value::items() const { return as<SequenceObject>().items; }

const Value* DictObject::find(const Value& key) const {
  std::string text;
  if (!hash_key(key, text)) return nullptr;
  auto it = index_.find(text);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

const Value* DictObject::find(std::string_view key) const {
  std::string text = "s";
  text += key;
  auto it = index_.find(text);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

bool DictObject::set(const Value& key, Value value) {
  std::string text;
  if (!hash_key(key, text)) return false;
  auto [it, is_new] = index_.try_emplace(std::move(text), entries_.size());
  if (is_new) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
  return true;
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "undefined value";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kIterator:
      return "iterator";
    case Kind::kView:
      return value.as<ViewObject>().type;
    case Kind::kFunction:
      return "function";
    case Kind::kMacro:
      return "macro";
    case Kind::kLoop:
      return "loop";
  }
  return "value";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kString:
      return !value.as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.items().empty();
    case Kind::kDict:
      return !value.as<DictObject>().entries().empty();
    case Kind::kNamespace:
    case Kind::kIterator:
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kLoop:
      return true;
  }
  return true;
}

namespace {

bool equal_items(const List& a, const List& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) return a.as_real() == b.as_real();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.as_string() == b.as_string();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(a.items(), b.items());
    case Kind::kView:
      return std::string_view(a.as<ViewObject>().type) == b.as<ViewObject>().type && equal_items(a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(a.as<DictObject>(), b.as<DictObject>());
    default:
      return a.identity() == b.identity();
  }
}

bool hash_key(const Value& value, std::string& out) {
  switch (value.kind()) {
    case Kind::kString:
      out += 's';
      out += value.as_string();
      return true;
    case Kind::kBool:
    case Kind::kInt:
      out += 'i' + std::to_string(value.as_int());
      return true;
    case Kind::kFloat: {
      const double real = value.as_real();
      if (std::nearbyint(real) == real && std::abs(real) < 9e18) {
        out += 'i' + std::to_string(static_cast<std::int64_t>(real));  // 1.0 and 1 are the same key
      } else {
        out += 'f' + std::to_string(real);
        out.append(reinterpret_cast<const char*>(&real), sizeof real);
      }
      return true;
    }
    case Kind::kNone:
      out += 'n';
      return true;
    case Kind::kTuple:
      out += '(';
      for (const Value& item : value.items()) {
        std::string part;
        if (!hash_key(item, part)) return false;
        out += std::to_string(part.size()) + ':' + part;
      }
      return true;
    default:
      return false;
  }
}

}  // namespace cadre::chat_template
