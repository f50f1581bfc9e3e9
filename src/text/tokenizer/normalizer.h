// The normalizer of tokenizer.json: what happens to the text before it is split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/json_value.h"
#include "text/tokenizer/regex.h"

namespace cadre::text {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // `limit` is the most bytes to make.
  virtual Result<std::string> apply(std::string_view text, std::size_t limit, RegexScratch& scratch) const = 0;
};

class Normalizer {
 public:
  // `json` may be null: no normalizer.
  static Result<Normalizer> from_json(const JsonValue* json);
  bool empty() const { return steps_.empty(); }
  Result<std::string> apply(std::string_view text, RegexScratch& scratch) const;

 private:
  Status add(const JsonValue& json);
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace cadre::text
