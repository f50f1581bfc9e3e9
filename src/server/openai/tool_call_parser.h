// ToolCallParser: finds calls of the Hermes and Qwen form in generated text that arrives in pieces:
//
//   <tool_call>
//   {"name": "weather", "arguments": {"city": "Bern"}}
//   </tool_call>
//
// The result is the same for every way to cut the text. What is no call comes out as the text it was.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cadre::server {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object, as the model wrote it
};

// Text that belongs to no call, or a call.
using ToolPiece = std::variant<std::string, ToolCall>;

// A closing tag inside a JSON string is a part of the string. A call that is not closed when the text ends counts if
// its JSON is complete. White space next to calls is theirs: before one, and after the last at the end of the text.
class ToolCallParser {
 public:
  // Longer ones come out as text.
  static constexpr std::size_t kMaxCall = 1 << 20;

  // Takes the next piece and returns what is now certain; a call as soon as its last character is there.
  std::vector<ToolPiece> feed(std::string_view text);
  // At the end of generation: what was held back.
  std::vector<ToolPiece> flush();

 private:
  // Both return false when they need more text.
  bool step_text(std::vector<ToolPiece>& out);
  bool step_call(std::vector<ToolPiece>& out);
  // Moves scan_ to the next closing tag; false if there is none yet.
  bool find_close();
  // The call in `body`, or the text that it was.
  void end_call(std::string_view body, std::string_view close, std::vector<ToolPiece>& out);
  // Back to text: `taken` bytes of buffer_ are done with.
  void leave_call(std::size_t taken);

  std::string buffer_;  // not yet decided; of a call: what follows its opening tag
  std::string space_;   // white space before the opening tag
  std::size_t scan_ = 0;
  bool in_call_ = false, in_string_ = false, escaped_ = false;
  bool strings_ = true;      // false: a quote opens nothing, because one of them was never closed
  bool after_call_ = false;  // nothing but white space came since the last call
};

}  // namespace cadre::server
