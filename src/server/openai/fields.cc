#include "server/openai/fields.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace cadre::server {
namespace {

std::string range(std::string_view noun, double min, double max, double lowest, double highest) {
  std::ostringstream out;
  out << noun;
  if (min > lowest && max < highest) {
    out << " from " << min << " to " << max;
  } else if (min > lowest) {
    out << " of at least " << min;
  } else if (max < highest) {
    out << " of at most " << max;
  }
  return std::move(out).str();
}

// A name may be as long as the body.
std::string_view shortened(std::string_view key) {
  std::size_t cut = std::min<std::size_t>(key.size(), 60);
  while (cut < key.size() && (static_cast<unsigned char>(key[cut]) & 0xc0u) == 0x80u) --cut;  // not inside a character
  return key.substr(0, cut);
}

bool asks_for_nothing(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return true;
    case Json::Type::kBool:
      return !*value.as_bool("");
    case Json::Type::kString:
      return value.as_string("")->empty();
    case Json::Type::kArray:
      return value.items().empty();
    case Json::Type::kObject:
      return value.members().empty();
    default:
      return false;
  }
}

bool allowed(const KnownField& field, const Json& value) {
  switch (field.kind) {
    case KnownField::Kind::kIgnored:
      return true;
    case KnownField::Kind::kOnlyOff:
      return asks_for_nothing(value);
    case KnownField::Kind::kOnlyTrue:
      return value.is_null() || (value.is_bool() && *value.as_bool(""));
    case KnownField::Kind::kRefused:
      return value.is_null();
  }
  return false;
}

}  // namespace

Fields::Fields(const Json& object, std::string path, std::optional<ApiError>& error)
    : object_(object), path_(std::move(path)), error_(error) {
  if (ok() && !object.is_object()) {
    error_ = bad_field(path_.empty() ? "the request" : path_, "is " + describe(object) + ", want an object");
  }
}

std::string Fields::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void Fields::fail(std::string_view key, std::string_view what) {
  if (ok()) error_ = bad_field(path(key), what);
}

void Fields::fail_type(std::string_view key, const Json& got, std::string_view want) {
  fail(key, "is " + describe(got) + ", want " + std::string(want));
}

const Json* Fields::any(std::string_view key) {
  read_.push_back(key);
  if (!ok()) return nullptr;
  const Json* value = object_.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::optional<bool> Fields::boolean(std::string_view key) {
  const Json* value = any(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return *value->as_bool(key);
  fail_type(key, *value, "true or false");
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(std::string_view key, std::int64_t min, std::int64_t max) {
  const Json* value = any(key);
  if (value == nullptr) return std::nullopt;
  if (const Result<std::int64_t> number = value->as_int(key, min, max); number.ok()) return *number;
  fail_type(key, *value,
            range("an integer", static_cast<double>(min), static_cast<double>(max), static_cast<double>(kMin),
                  static_cast<double>(kMax)));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view key, double min, double max) {
  constexpr double kHighest = std::numeric_limits<double>::max();
  const Json* value = any(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = *value->as_double(key);
    if (std::isfinite(number) && number >= min && number <= max) return number;
  }
  fail_type(key, *value, range("a number", min, max, -kHighest, kHighest));
  return std::nullopt;
}

std::optional<std::string> Fields::text(std::string_view key) {
  const Json* value = any(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return *value->as_string(key);
  fail_type(key, *value, "a string");
  return std::nullopt;
}

const Json* Fields::object(std::string_view key) {
  const Json* value = any(key);
  if (value == nullptr || value->is_object()) return value;
  fail_type(key, *value, "an object");
  return nullptr;
}

const Json* Fields::array(std::string_view key, std::size_t max_items) {
  const Json* value = any(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    fail_type(key, *value, "an array");
    return nullptr;
  }
  if (value->items().size() > max_items) {
    fail(key, "has " + std::to_string(value->items().size()) + " items, want at most " + std::to_string(max_items));
    return nullptr;
  }
  return value;
}

void Fields::refuse_others(std::span<const KnownField> known) {
  if (!ok()) return;
  for (const auto& [key, value] : object_.members()) {
    if (std::find(read_.begin(), read_.end(), key) != read_.end()) continue;
    const auto field = std::find_if(known.begin(), known.end(), [&](const KnownField& f) { return f.name == key; });
    if (field == known.end()) {
      const std::string where = path(shortened(key));
      error_ = bad_field(where, "is not known to this server; it could change the output, so it is refused",
                         "unknown_field");
      return;
    }
    if (allowed(*field, value)) continue;
    error_ = bad_field(path(key), field->why, "unsupported_field");
    return;
  }
}

}  // namespace cadre::server
