// A configuration file: YAML, so JSON too. `key: value`, a list of values, or a map, which stands for JSON.
#pragma once

#include <cadre/status.h>

#include <string>
#include <string_view>
#include <vector>

namespace cadre::cli {

struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // one of a plain value, any number of a list; a map is the text of a JSON object
  bool is_list = false;
  int line = 0;  // where the key stands, from 1
};

// In the file's order. Messages begin with `source`, and "source:line" where they are about one. Refused: what is no
// map, keys given twice, keys without a value, more than 1 MiB.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text, const std::string& source);
Result<std::vector<ConfigEntry>> read_config_file(const std::string& path);

}  // namespace cadre::cli
