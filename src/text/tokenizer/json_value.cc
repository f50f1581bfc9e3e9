#include "text/tokenizer/json_value.h"

#include "base/result.h"

namespace cadre::text {

const char* JsonValue::kind_name() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInteger:
      return "an integer";
    case Kind::kNumber:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "nothing";
}

const JsonValue* JsonValue::get(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return items[i].is_null() ? nullptr : &items[i];
  }
  return nullptr;
}

Result<const JsonValue*> JsonValue::need(std::string_view key) const {
  if (!is_object()) return error(Code::kInvalidFile, path, ": expected an object, got ", kind_name());
  const JsonValue* value = get(key);
  if (value == nullptr) return error(Code::kInvalidFile, path, ": lacks '", key, "'");
  return value;
}

Result<std::string_view> JsonValue::need_string(std::string_view key) const {
  CADRE_ASSIGN(const JsonValue* value, need(key));
  if (!value->is_string()) {
    return error(Code::kInvalidFile, value->path, ": expected a string, got ", value->kind_name());
  }
  return std::string_view(value->string);
}

Result<std::string_view> JsonValue::type() const { return need_string("type"); }

Result<bool> JsonValue::bool_or(std::string_view key, bool absent) const {
  const JsonValue* value = get(key);
  if (value == nullptr) return absent;
  if (value->kind != Kind::kBool) {
    return error(Code::kInvalidFile, value->path, ": expected true or false, got ", value->kind_name());
  }
  return value->boolean;
}

Result<std::int64_t> JsonValue::integer_or(std::string_view key, std::int64_t absent) const {
  const JsonValue* value = get(key);
  if (value == nullptr) return absent;
  if (value->kind != Kind::kInteger) {
    return error(Code::kInvalidFile, value->path, ": expected an integer, got ", value->kind_name());
  }
  return value->integer;
}

Result<const std::vector<JsonValue>*> JsonValue::need_array(std::string_view key) const {
  CADRE_ASSIGN(const JsonValue* value, need(key));
  if (!value->is_array()) {
    return error(Code::kInvalidFile, value->path, ": expected an array, got ", value->kind_name());
  }
  return &value->items;
}

}  // namespace cadre::text
