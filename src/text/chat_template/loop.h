// The variable `loop` of a for block.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "text/chat_template/runtime.h"

namespace cadre::chat_template {

// Walks the elements a loop keeps. The condition of `for x in y if c` runs as late as possible, as in Jinja2: it may
// read what the body has set, unless `loop` is asked for what comes next.
struct LoopObject : Object {
  using Condition = std::function<Result<bool>(const Value&)>;

  List items;
  std::size_t cursor = 0;   // into items
  Condition condition;      // empty for none; cleared when the loop ends
  std::deque<Value> ahead;  // kept elements already looked at
  std::optional<Value> previous;
  std::optional<Value> current;
  std::int64_t index = 0;              // from 1
  int nesting = 1;                     // of loops, from 1
  std::optional<std::string> changed;  // what changed() was last given

  // Moves to the next element; false at the end.
  Result<bool> advance();
  // Fills `ahead` with up to `count` elements.
  Status look_ahead(std::size_t count);
};

std::optional<Result<Value>> loop_attribute(Runtime& runtime, const Value& loop, const std::string& name);

}  // namespace cadre::chat_template
