#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "io/json_data.h"
#include "io/mapped_file.h"

namespace cadre {

bool Json::Object::index(std::string* duplicate) {
  by_key.resize(members.size());
  std::iota(by_key.begin(), by_key.end(), 0u);
  const auto key = [this](std::uint32_t i) -> const std::string& { return members[i].first; };
  // Equal keys stay in the text's order. (Not stable_sort: libstdc++ 12's is built on a function that clang rejects as
  // deprecated.)
  std::sort(by_key.begin(), by_key.end(), [&](auto a, auto b) {
    const int order = key(a).compare(key(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<bool> dropped;
  for (std::size_t i = 1, first = 0; i < by_key.size(); ++i) {
    if (key(by_key[i]) != key(by_key[first])) {
      first = i;
      continue;
    }
    if (dropped.empty()) {
      dropped.resize(members.size());
      *duplicate = key(by_key[i]);
    }
    members[by_key[first]].second = std::move(members[by_key[i]].second);
    dropped[by_key[i]] = true;
  }
  if (dropped.empty()) return false;
  std::vector<Member> kept;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!dropped[i]) kept.push_back(std::move(members[i]));
  }
  members = std::move(kept);
  std::string none;
  index(&none);
  return true;
}

Json Json::object(std::vector<Member> members) {
  auto data = std::make_shared<Object>();
  data->members = std::move(members);
  std::string duplicate;
  data->index(&duplicate);
  Json json;
  json.value_ = std::shared_ptr<const Object>(std::move(data));
  return json;
}

Json Json::array(std::vector<Json> items) {
  auto data = std::make_shared<Array>();
  data->items = std::move(items);
  Json json;
  json.value_ = std::shared_ptr<const Array>(std::move(data));
  return json;
}

Result<Json> Json::parse_file(const std::string& path, const JsonParseOptions& options) {
  CADRE_ASSIGN(const std::string text, read_text_file(path, options.max_bytes));
  return parse(text, path, options);
}

std::span<const Json> Json::items() const {
  const auto* data = std::get_if<std::shared_ptr<const Array>>(&value_);
  return data ? std::span<const Json>((*data)->items) : std::span<const Json>();
}

const Json::Object* Json::object_data() const {
  const auto* data = std::get_if<std::shared_ptr<const Object>>(&value_);
  return data ? data->get() : nullptr;
}

std::span<const Json::Member> Json::members() const {
  const Object* data = object_data();
  if (data != nullptr && data->asked != nullptr) {
    for (std::size_t i = 0; i < data->members.size(); ++i) data->asked[i].store(true, std::memory_order_relaxed);
  }
  return unwatched_members();
}

std::span<const Json::Member> Json::unwatched_members() const {
  const Object* data = object_data();
  return data ? std::span<const Member>(data->members) : std::span<const Member>();
}

const Json* Json::find(std::string_view key) const {
  const Object* data = object_data();
  if (data == nullptr) return nullptr;
  const auto at = std::lower_bound(data->by_key.begin(), data->by_key.end(), key,
                                   [&](std::uint32_t i, std::string_view k) { return data->members[i].first < k; });
  if (at == data->by_key.end() || data->members[*at].first != key) return nullptr;
  if (data->asked != nullptr) data->asked[*at].store(true, std::memory_order_relaxed);
  return &data->members[*at].second;
}

bool Json::has(std::string_view key) const {
  const Json* member = find(key);
  return member != nullptr && !member->is_null();
}

Json Json::with(std::string_view key, Json value) const {
  const Object* data = object_data();
  auto copy = std::make_shared<Object>();
  if (data != nullptr) {
    copy->members = data->members;
    copy->source = data->source;
    copy->path = data->path;
  }
  copy->members.emplace_back(key, std::move(value));  // of two with one key the later one counts
  std::string duplicate;
  copy->index(&duplicate);
  Json json;
  json.value_ = std::shared_ptr<const Object>(std::move(copy));
  return json;
}

Json Json::watched() const {
  Json json = *this;
  if (is_array()) {
    std::vector<Json> copies;
    for (const Json& item : items()) copies.push_back(item.watched());
    return array(std::move(copies));
  }
  const Object* data = object_data();
  if (data == nullptr) return json;
  auto copy = std::make_shared<Object>();
  for (const Member& member : data->members) copy->members.emplace_back(member.first, member.second.watched());
  copy->by_key = data->by_key;
  copy->source = data->source;
  copy->path = data->path;
  copy->asked = std::make_unique<std::atomic<bool>[]>(copy->members.size());
  json.value_ = std::shared_ptr<const Object>(std::move(copy));
  return json;
}

std::vector<Json::Unasked> Json::unasked() const {
  std::vector<std::string> path;
  std::vector<Unasked> out;
  add_unasked(path, out);
  return out;
}

void Json::add_unasked(std::vector<std::string>& path, std::vector<Unasked>& out) const {
  std::size_t index = 0;
  for (const Json& item : items()) {
    path.push_back("[" + std::to_string(index++) + "]");
    item.add_unasked(path, out);
    path.pop_back();
  }
  const Object* data = object_data();
  if (data == nullptr || data->asked == nullptr) return;
  for (std::size_t i = 0; i < data->members.size(); ++i) {
    const auto& [key, value] = data->members[i];
    path.push_back(key);
    if (data->asked[i].load(std::memory_order_relaxed)) {
      value.add_unasked(path, out);
    } else {
      out.push_back({.path = path, .where = where(key), .value = value});
    }
    path.pop_back();
  }
}

std::string describe(const Json& value) {
  constexpr std::size_t kLongest = 60;
  switch (value.type()) {
    case Json::Type::kArray:
      return "an array";
    case Json::Type::kObject:
      return "an object";
    default:
      break;
  }
  std::string text = value.dump({.indent = -1, .non_finite = JsonDumpOptions::NonFinite::kPython});
  if (text.size() > kLongest) {
    std::size_t cut = kLongest;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0u) == 0x80u) --cut;  // not inside a character
    text.resize(cut);
    text += "...";
  }
  return text;
}

namespace {

Status mismatch(Code code, std::string_view what, const Json& got, std::string_view want) {
  return error(code, what, " is ", describe(got), ", want ", want);
}

std::string int_range(std::int64_t min, std::int64_t max) {
  std::ostringstream out;
  out << "an integer";
  if (min != Json::kIntMin && max != Json::kIntMax) {
    out << " from " << min << " to " << max;
  } else if (min != Json::kIntMin) {
    out << " of at least " << min;
  } else if (max != Json::kIntMax) {
    out << " of at most " << max;
  }
  return std::move(out).str();
}

constexpr std::string_view kWantBool = "true or false";
constexpr std::string_view kWantDouble = "a number";
constexpr std::string_view kWantString = "a string";

}  // namespace

Result<bool> Json::as_bool(std::string_view what, Code code) const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  return mismatch(code, what, *this, kWantBool);
}

Result<std::int64_t> Json::as_int(std::string_view what, std::int64_t min, std::int64_t max, Code code) const {
  const std::int64_t* value = std::get_if<std::int64_t>(&value_);
  std::int64_t integral = 0;
  if (const double* number = std::get_if<double>(&value_)) {
    // 2^63 is the first double beyond the range; -2^63 is in it.
    if (*number >= -0x1p63 && *number < 0x1p63 && std::trunc(*number) == *number) {
      integral = static_cast<std::int64_t>(*number);
      value = &integral;
    }
  }
  if (value == nullptr || *value < min || *value > max) return mismatch(code, what, *this, int_range(min, max));
  return *value;
}

Result<double> Json::as_double(std::string_view what, Code code) const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  if (const std::int64_t* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  return mismatch(code, what, *this, kWantDouble);
}

Result<std::string> Json::as_string(std::string_view what, Code code) const {
  if (const std::string* value = std::get_if<std::string>(&value_)) return *value;
  return mismatch(code, what, *this, kWantString);
}

std::string Json::where(std::string_view key) const {
  const Object* data = object_data();
  std::string text;
  if (data != nullptr && data->source != nullptr) text = data->source->name + ": ";
  text += "field '";
  if (data != nullptr && !data->path.empty()) text += data->path + ".";
  return text.append(key) + "'";
}

Code Json::code() const {
  const Object* data = object_data();
  return data != nullptr && data->source != nullptr ? data->source->code : Code::kInvalidFile;
}

Result<const Json*> Json::require(std::string_view key, std::string_view want) const {
  if (!is_object()) return error(code(), where(key), " was looked for in ", describe(*this), ", want an object");
  const Json* member = find(key);
  if (member == nullptr) return error(code(), where(key), " is missing, want ", want);
  if (member->is_null()) return error(code(), where(key), " is null, want ", want);
  return member;
}

Result<bool> Json::get_bool(std::string_view key) const {
  CADRE_ASSIGN(const Json* member, require(key, kWantBool));
  return member->as_bool(where(key), code());
}

Result<std::int64_t> Json::get_int(std::string_view key, std::int64_t min, std::int64_t max) const {
  CADRE_ASSIGN(const Json* member, require(key, int_range(min, max)));
  return member->as_int(where(key), min, max, code());
}

Result<double> Json::get_double(std::string_view key) const {
  CADRE_ASSIGN(const Json* member, require(key, kWantDouble));
  return member->as_double(where(key), code());
}

Result<std::string> Json::get_string(std::string_view key) const {
  CADRE_ASSIGN(const Json* member, require(key, kWantString));
  return member->as_string(where(key), code());
}

Result<Json> Json::get_object(std::string_view key) const {
  CADRE_ASSIGN(const Json* member, require(key, "an object"));
  if (!member->is_object()) return mismatch(code(), where(key), *member, "an object");
  return *member;
}

Result<std::vector<Json>> Json::get_array(std::string_view key) const {
  CADRE_ASSIGN(const Json* member, require(key, "an array"));
  if (!member->is_array()) return mismatch(code(), where(key), *member, "an array");
  return std::vector<Json>(member->items().begin(), member->items().end());
}

template <class T, class Convert>
Result<std::vector<T>> Json::get_list(std::string_view key, std::string_view want, const Convert& convert) const {
  CADRE_ASSIGN(const Json* member, require(key, want));
  if (!member->is_array()) return mismatch(code(), where(key), *member, want);
  std::vector<T> values;
  values.reserve(member->items().size());
  for (const Json& item : member->items()) {
    Result<T> value = convert(item, std::string_view());
    if (!value.ok()) {
      // Only now is the name of the item worth its cost.
      return convert(item, where(std::string(key) + "[" + std::to_string(values.size()) + "]")).status();
    }
    values.push_back(std::move(*value));
  }
  return values;
}

Result<std::vector<std::int64_t>> Json::get_int_list(std::string_view key) const {
  return get_list<std::int64_t>(key, "an array of integers", [this](const Json& item, std::string_view what) {
    return item.as_int(what, kIntMin, kIntMax, code());
  });
}

Result<std::vector<double>> Json::get_double_list(std::string_view key) const {
  return get_list<double>(key, "an array of numbers",
                          [this](const Json& item, std::string_view what) { return item.as_double(what, code()); });
}

Result<std::vector<std::string>> Json::get_string_list(std::string_view key) const {
  return get_list<std::string>(key, "an array of strings", [this](const Json& item, std::string_view what) {
    return item.as_string(what, code());
  });
}

Result<bool> Json::get_bool_or(std::string_view key, bool otherwise) const {
  if (is_object() && !has(key)) return otherwise;
  return get_bool(key);
}

Result<std::int64_t> Json::get_int_or(std::string_view key, std::int64_t otherwise, std::int64_t min,
                                      std::int64_t max) const {
  if (is_object() && !has(key)) return otherwise;
  return get_int(key, min, max);
}

Result<double> Json::get_double_or(std::string_view key, double otherwise) const {
  if (is_object() && !has(key)) return otherwise;
  return get_double(key);
}

Result<std::string> Json::get_string_or(std::string_view key, std::string_view otherwise) const {
  if (is_object() && !has(key)) return std::string(otherwise);
  return get_string(key);
}

}  // namespace cadre
