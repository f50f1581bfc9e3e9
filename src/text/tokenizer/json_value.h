// A small read-only JSON tree for the short parts of tokenizer.json, so that only one file needs the JSON parser. The
// readers name the field in their errors: "pre_tokenizer.pretokenizers[1].pattern: expected a string".
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::text {

class JsonValue {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string string;
  std::vector<JsonValue> items;   // of an array or an object
  std::vector<std::string> keys;  // of an object, one for each item
  std::string path;               // where it stands in the file

  bool is_null() const { return kind == Kind::kNull; }
  bool is_object() const { return kind == Kind::kObject; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_string() const { return kind == Kind::kString; }

  // The member, or nothing when it is absent or null.
  const JsonValue* get(std::string_view key) const;
  // The "type" member of an object.
  Result<std::string_view> type() const;

  Result<const JsonValue*> need(std::string_view key) const;
  Result<std::string_view> need_string(std::string_view key) const;
  Result<bool> bool_or(std::string_view key, bool absent) const;
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t absent) const;
  // The array `key`, which must be there.
  Result<const std::vector<JsonValue>*> need_array(std::string_view key) const;

  const char* kind_name() const;
};

}  // namespace cadre::text
