// What Json's arrays and objects hold; shared by the value type and its parser.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/json.h"

namespace cadre {

struct JsonSource {
  std::string name;  // of the text, e.g. a file's path
  Code code = Code::kInvalidFile;
};

struct Json::Array {
  std::vector<Json> items;
};

struct Json::Object {
  std::vector<Member> members;
  std::vector<std::uint32_t> by_key;  // indices of members sorted by key: no input makes a lookup slow, unlike a hash
  std::shared_ptr<const JsonSource> source;    // null for values made by code
  std::string path;                            // of this object in the text, e.g. "text_config.rope_parameters"
  std::unique_ptr<std::atomic<bool>[]> asked;  // by member, where somebody watches; otherwise null

  // Fills by_key and merges members with the same key: the first keeps its place and takes the last one's value, as in
  // Python. Returns whether there were any, and the first such key through `duplicate`.
  bool index(std::string* duplicate);
};

}  // namespace cadre
