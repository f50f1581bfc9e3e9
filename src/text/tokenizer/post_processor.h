// The post-processor of tokenizer.json, for one text: the special tokens before and after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer/json_value.h"

namespace cadre::text {

class PostProcessor {
 public:
  // `json` may be null: nothing is added.
  static Result<PostProcessor> from_json(const JsonValue* json);
  const std::vector<std::int32_t>& before() const { return before_; }
  const std::vector<std::int32_t>& after() const { return after_; }

 private:
  Status add(const JsonValue& json);
  Status add_template(const JsonValue& json);
  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> after_;
};

}  // namespace cadre::text
