// The pre-tokenizer of tokenizer.json: cuts the text into the pieces that the model encodes one by one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/json_value.h"
#include "text/tokenizer/regex.h"

namespace cadre::text {

// A text and its pieces, from left to right, none overlapping; what lies between them is dropped.
struct Pieces {
  std::string_view text;  // `owned`, or the caller's text while no step has changed it
  std::string owned;
  std::vector<Span> spans;
  std::size_t limit = 0;  // the most bytes that steps may make of it
  bool at_start = false;  // whether it begins where the whole input begins

  void replace_text(std::string new_text) {
    owned = std::move(new_text);
    text = owned;
  }
};

// Room for steps to work in; kept between calls.
struct SplitScratch {
  RegexScratch regex;
  std::vector<Span> matches;
  std::vector<Span> spans;
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual Status apply(Pieces& pieces, SplitScratch& scratch) const = 0;
};

class PreTokenizer {
 public:
  // `json` may be null: the text is one piece.
  static Result<PreTokenizer> from_json(const JsonValue* json);
  // `pieces` comes with one span over its whole text.
  Status apply(Pieces& pieces, SplitScratch& scratch) const;

 private:
  Status add(const JsonValue& json);
  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
};

}  // namespace cadre::text
