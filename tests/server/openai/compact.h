// JSON text without the white space between its parts, for comparisons.
#pragma once

#include <string>
#include <string_view>

namespace cadre::server {

inline std::string compact(std::string_view json) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') in_string = !in_string;
    if (in_string || c != ' ') out += c;
    if (in_string && c == '\\') out += json[++i];
  }
  return out;
}

}  // namespace cadre::server
