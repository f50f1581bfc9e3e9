// Fields: the members of a JSON object read one after the other, each with its type and range. The first failure is
// kept and everything read later is absent, so that a parser is a list of reads with one check at its end.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "server/openai/api_error.h"

namespace cadre::server {

// A field that this server knows and does not read.
struct KnownField {
  enum class Kind : std::uint8_t {
    kIgnored,   // whatever its value, the output is the same
    kOnlyOff,   // fine while it asks for nothing: false, "", [] or {}
    kOnlyTrue,  // fine while it is true
    kRefused,   // never
  };
  std::string_view name;
  Kind kind;
  std::string_view why;  // after the field's name, where it is refused
};

class Fields {
 public:
  static constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

  // `path` names the object in messages and in `param`; empty for the request itself. `error` outlives this object and
  // may be shared by the readers of nested ones.
  Fields(const Json& object, std::string path, std::optional<ApiError>& error);

  // Absent also where the member is null.
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t min = kMin, std::int64_t max = kMax);
  std::optional<double> number(std::string_view key, double min, double max);
  std::optional<std::string> text(std::string_view key);
  const Json* object(std::string_view key);
  const Json* array(std::string_view key, std::size_t max_items);
  // A reader of a member of this object, or of something within one, that shares its error.
  Fields inside(std::string_view key, const Json& value) { return Fields(value, path(key), error_); }
  // Any type; the caller checks it.
  const Json* any(std::string_view key);

  // Refuses the members that nobody read, but for those in `known`, which are judged by their kind.
  void refuse_others(std::span<const KnownField> known = {});

  std::string path(std::string_view key) const;
  void fail(std::string_view key, std::string_view what);
  bool ok() const { return !error_.has_value(); }

 private:
  void fail_type(std::string_view key, const Json& got, std::string_view want);

  const Json& object_;
  std::string path_;
  std::optional<ApiError>& error_;
  std::vector<std::string_view> read_;
};

}  // namespace cadre::server
