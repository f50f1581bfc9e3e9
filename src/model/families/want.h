// Fields of published configs that a family reads in one way only: absent, or set to what the family does anyway.
#pragma once

#include <initializer_list>

#include "io/json.h"

namespace cadre {

Status want_bool(const Json& json, std::string_view key, bool want);
Status want_int(const Json& json, std::string_view key, std::int64_t want);
Status want_double(const Json& json, std::string_view key, double want);
Status want_string(const Json& json, std::string_view key, std::initializer_list<std::string_view> known);

}  // namespace cadre
