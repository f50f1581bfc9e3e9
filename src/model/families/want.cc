#include "model/families/want.h"

#include "base/result.h"

namespace cadre {

Status want_bool(const Json& json, std::string_view key, bool want) {
  CADRE_ASSIGN(const bool got, json.get_bool_or(key, want));
  if (got == want) return {};
  return error(Code::kUnsupported, json.where(key), " is ", got ? "true" : "false", ", and this family is run with ",
               want ? "true" : "false", " only");
}

Status want_int(const Json& json, std::string_view key, std::int64_t want) {
  CADRE_ASSIGN(const std::int64_t got, json.get_int_or(key, want));
  if (got == want) return {};
  return error(Code::kUnsupported, json.where(key), " is ", got, ", and this family is run with ", want, " only");
}

Status want_double(const Json& json, std::string_view key, double want) {
  CADRE_ASSIGN(const double got, json.get_double_or(key, want));
  if (got == want) return {};
  return error(Code::kUnsupported, json.where(key), " is ", got, ", and this family is run with ", want, " only");
}

Status want_string(const Json& json, std::string_view key, std::initializer_list<std::string_view> known) {
  if (!json.has(key)) return {};
  CADRE_ASSIGN(const std::string value, json.get_string(key));
  std::string list;
  for (const std::string_view name : known) {
    if (name == value) return {};
    list += (list.empty() ? "" : " or ") + std::string(name);
  }
  return error(Code::kUnsupported, json.where(key), " is '", value, "', want ", list);
}

}  // namespace cadre
