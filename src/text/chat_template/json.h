// JSON in and out of template values.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/runtime.h"

namespace cadre::chat_template {

// `what` names the text in messages: "messages".
Result<Value> parse_json(Budget& budget, const std::string& text, std::string_view what);

// An indent of "" with `pretty` puts each element on a line of its own without space before it.
struct JsonStyle {
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  std::string indent;
  bool pretty = false;
  bool sort_keys = false;
  bool ascii_only = false;
};

// As Python's json.dumps.
Result<std::string> dump_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace cadre::chat_template
