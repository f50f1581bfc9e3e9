// JSON values: parsed from configs, file headers and requests, and written for machine-readable output.
#pragma once

#include <cadre/status.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace cadre {

struct JsonParseOptions {
  enum class Duplicates { kLastWins, kRefuse };

  std::uint64_t max_bytes = 64u << 20;
  int max_depth = 64;                             // of nested arrays and objects; at most 256
  std::uint64_t max_values = 4'000'000;           // an object is 3 bytes of text and over 200 of memory
  Duplicates duplicates = Duplicates::kLastWins;  // of an object's keys; Python keeps the last
  // Take what Python's json.dump and transformers write for numbers JSON cannot express: the bare words NaN, Infinity
  // and -Infinity, and objects like {"__float__": "Infinity"}. All become numbers.
  bool python_numbers = true;
  Code code = Code::kInvalidFile;  // of the errors of parsing and of the get_ functions; kInvalidArgument for requests
};

struct JsonDumpOptions {
  enum class NonFinite { kNull, kPython };  // null, or the words NaN, Infinity, -Infinity

  int indent = -1;  // spaces for each level; negative: one line
  NonFinite non_finite = NonFinite::kNull;
};

// An immutable JSON value. Arrays, objects and their content are shared, so copies are cheap, may be used from several
// threads, and outlive what they were taken from. Objects keep the order of their keys.
class Json {
 public:
  enum class Type : std::uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;
  static constexpr std::int64_t kIntMin = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kIntMax = std::numeric_limits<std::int64_t>::max();

  // `source` names the text in messages, e.g. a file's path. Strings must be valid UTF-8. A number without fraction and
  // exponent is an integer if it fits in 64 bits; every other number is the nearest double.
  static Result<Json> parse(std::string_view text, std::string_view source, const JsonParseOptions& options = {});
  // Reads and parses a file of at most options.max_bytes.
  static Result<Json> parse_file(const std::string& path, const JsonParseOptions& options = {});

  Json() = default;                                           // null
  Json(std::nullptr_t) {}                                     // NOLINT: implicit on purpose, as those below
  Json(const char* text) : value_(std::string(text)) {}       // NOLINT
  Json(std::string text) : value_(std::move(text)) {}         // NOLINT
  Json(std::string_view text) : value_(std::string(text)) {}  // NOLINT
  template <class T>
    requires std::is_arithmetic_v<T>
  Json(T number) {  // NOLINT
    if constexpr (std::is_same_v<T, bool>) {
      value_ = number;
    } else if constexpr (std::is_floating_point_v<T>) {
      value_ = static_cast<double>(number);
    } else if (std::in_range<std::int64_t>(number)) {
      value_ = static_cast<std::int64_t>(number);
    } else {
      value_ = static_cast<double>(number);
    }
  }
  // A later member with the same key replaces an earlier one's value.
  static Json object(std::vector<Member> members);
  static Json array(std::vector<Json> items);
  template <class T>
    requires(!std::is_same_v<T, Json>)
  static Json array(const std::vector<T>& items) {
    return array(std::vector<Json>(items.begin(), items.end()));
  }

  Type type() const { return static_cast<Type>(value_.index()); }
  bool is_null() const { return type() == Type::kNull; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_int() const { return type() == Type::kInt; }  // written as an integer and within 64 bits
  bool is_number() const { return type() == Type::kInt || type() == Type::kDouble; }
  bool is_string() const { return type() == Type::kString; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_object() const { return type() == Type::kObject; }

  // An array's items; empty for every other type. Valid while any copy of this value lives.
  std::span<const Json> items() const;
  // An object's members in the file's order; empty for every other type.
  std::span<const Member> members() const;
  // The member of an object; nullptr if there is none or this is no object.
  const Json* find(std::string_view key) const;
  // True if the key is there and not null.
  bool has(std::string_view key) const;

  // A copy of an object in which `key` has this value; messages about it say where the original comes from.
  Json with(std::string_view key, Json value) const;

  // A copy that remembers, for itself and every object inside, which members were looked up: by find, has, the get_
  // functions and members. Copies of it share what is remembered, and threads may look up at the same time.
  Json watched() const;
  // The members that nothing looked up since `watched`, in the text's order; inside an object that was looked up, those
  // of it. None where nobody watches.
  struct Unasked;
  std::span<const Member> unwatched_members() const;  // which looks nothing up
  std::vector<Unasked> unasked() const;

  // This value as a C++ type. `what` names it in the message, e.g. "layer_types[3]". An integer may be written as a
  // double without fraction (6.0) and must be in [min, max]; a double may be written as an integer.
  Result<bool> as_bool(std::string_view what, Code code = Code::kInvalidFile) const;
  Result<std::int64_t> as_int(std::string_view what, std::int64_t min = kIntMin, std::int64_t max = kIntMax,
                              Code code = Code::kInvalidFile) const;
  Result<double> as_double(std::string_view what, Code code = Code::kInvalidFile) const;
  Result<std::string> as_string(std::string_view what, Code code = Code::kInvalidFile) const;

  // A member of this object; an error if it is absent, null or of another type. Messages name the source, the path of
  // the key, the value found and what was wanted: "config.json: field 'text_config.num_experts' is 'many', want an
  // integer".
  Result<bool> get_bool(std::string_view key) const;
  Result<std::int64_t> get_int(std::string_view key, std::int64_t min = kIntMin, std::int64_t max = kIntMax) const;
  Result<double> get_double(std::string_view key) const;
  Result<std::string> get_string(std::string_view key) const;
  Result<Json> get_object(std::string_view key) const;
  Result<std::vector<Json>> get_array(std::string_view key) const;
  Result<std::vector<std::int64_t>> get_int_list(std::string_view key) const;
  Result<std::vector<double>> get_double_list(std::string_view key) const;
  Result<std::vector<std::string>> get_string_list(std::string_view key) const;

  // The same, with a default for a key that is absent or null. Another type is still an error.
  Result<bool> get_bool_or(std::string_view key, bool otherwise) const;
  Result<std::int64_t> get_int_or(std::string_view key, std::int64_t otherwise, std::int64_t min = kIntMin,
                                  std::int64_t max = kIntMax) const;
  Result<double> get_double_or(std::string_view key, double otherwise) const;
  Result<std::string> get_string_or(std::string_view key, std::string_view otherwise) const;

  // "config.json: field 'rope_parameters.rope_theta'": how a message names a member of this object.
  std::string where(std::string_view key) const;

  // As JSON text. Bytes that are not UTF-8 are written as U+FFFD, so the text is always valid.
  std::string dump(const JsonDumpOptions& options = {}) const;

 private:
  friend class JsonParser;
  struct Array;
  struct Object;
  const Object* object_data() const;
  void add_unasked(std::vector<std::string>& path, std::vector<Unasked>& out) const;
  Code code() const;  // of errors about members
  Result<const Json*> require(std::string_view key, std::string_view want) const;
  template <class T, class Convert>
  Result<std::vector<T>> get_list(std::string_view key, std::string_view want, const Convert& convert) const;

  // In the order of Type.
  std::variant<std::monostate, bool, std::int64_t, double, std::string, std::shared_ptr<const Array>,
               std::shared_ptr<const Object>>
      value_;
};

struct Json::Unasked {
  std::vector<std::string>
      path;           // from where `unasked` was called: {"rope_parameters", "factor"}, {"kinds", "[0]", "size"}
  std::string where;  // as Json::where
  Json value;
};

// "an object", "6.5", "'relu'": a value's type or, for scalars, the value itself, shortened, for messages.
std::string describe(const Json& value);

}  // namespace cadre
