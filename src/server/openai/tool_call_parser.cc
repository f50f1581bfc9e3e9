#include "server/openai/tool_call_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "io/json.h"

namespace cadre::server {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kSpace = " \t\r\n";
// As much white space as is held back before what may be a call; the rest of a longer run is text. Without a limit
// every piece would look through all of a run that never ends.
constexpr std::size_t kMaxSpace = 256;

void add_text(std::vector<ToolPiece>& out, std::string_view text) {
  if (text.empty()) return;
  if (out.empty() || !std::holds_alternative<std::string>(out.back())) out.emplace_back(std::string());
  std::get<std::string>(out.back()) += text;
}

// How many of the last bytes are white space, at most kMaxSpace.
std::size_t trailing_space(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kSpace);
  return std::min(text.size() - (last == std::string_view::npos ? 0 : last + 1), kMaxSpace);
}

// The longest end of `text` that begins an opening tag.
std::size_t partial_open(std::string_view text) {
  for (std::size_t n = std::min(text.size(), kOpen.size() - 1); n > 0; --n) {
    if (text.ends_with(kOpen.substr(0, n))) return n;
  }
  return 0;
}

// The end of the JSON string that begins at `at`, behind its closing quote.
std::size_t string_end(std::string_view json, std::size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return std::min(at + 1, json.size());
}

// A member's value as it is written in the text of a valid object; empty if the key is not there, or escaped. Parsing
// and writing again would round large numbers.
std::string_view member_text(std::string_view object, std::string_view key) {
  const auto skip_space = [&](std::size_t at) { return std::min(object.find_first_not_of(kSpace, at), object.size()); };
  std::size_t at = skip_space(object.find('{') + 1);
  while (at < object.size() && object[at] == '"') {
    const std::size_t key_end = string_end(object, at);
    const bool found = object.substr(at + 1, key_end - at - 2) == key;
    const std::size_t begin = skip_space(skip_space(key_end) + 1);  // behind the colon
    std::size_t end = begin;
    for (int depth = 0; end < object.size();) {
      const char c = object[end];
      if (depth == 0 && (c == ',' || c == '}')) break;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      end = c == '"' ? string_end(object, end) : end + 1;
    }
    if (found) {
      const std::string_view value = object.substr(begin, end - begin);
      return value.substr(0, value.find_last_not_of(kSpace) + 1);
    }
    at = skip_space(end + 1);
  }
  return {};
}

bool is_object(std::string_view text) {
  const Result<Json> json = Json::parse(text, "arguments", {.python_numbers = false});
  return json.ok() && json->is_object();
}

std::optional<ToolCall> parse_call(std::string_view body) {
  const Result<Json> json =
      Json::parse(body, "tool call", {.duplicates = JsonParseOptions::Duplicates::kRefuse, .python_numbers = false});
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const Json* name = json->find("name");
  if (name == nullptr || !name->is_string()) return std::nullopt;
  ToolCall call{*name->as_string("name"), "{}"};
  if (call.name.empty()) return std::nullopt;
  if (!json->has("arguments")) return call;
  const Json& arguments = *json->find("arguments");
  if (arguments.is_object()) {
    const std::string_view written = member_text(body, "arguments");
    call.arguments = written.empty() ? arguments.dump() : std::string(written);
  } else if (arguments.is_string() && is_object(*arguments.as_string("arguments"))) {
    call.arguments = *arguments.as_string("arguments");  // some models encode them twice
  } else {
    return std::nullopt;
  }
  return call;
}

}  // namespace

std::vector<ToolPiece> ToolCallParser::feed(std::string_view text) {
  std::vector<ToolPiece> out;
  buffer_ += text;
  while (in_call_ ? step_call(out) : step_text(out)) {
  }
  return out;
}

bool ToolCallParser::step_text(std::vector<ToolPiece>& out) {
  const std::string_view text = buffer_;
  const std::size_t open = text.find(kOpen);
  const bool found = open != std::string_view::npos;
  const std::size_t end = found ? open : text.size() - partial_open(text);
  const std::size_t sure = end - trailing_space(text.substr(0, end));
  add_text(out, text.substr(0, sure));
  if (sure > 0) after_call_ = false;
  if (found) {
    space_ = text.substr(sure, end - sure);
    in_call_ = true;
  }
  buffer_.erase(0, found ? open + kOpen.size() : sure);
  return found;
}

bool ToolCallParser::step_call(std::vector<ToolPiece>& out) {
  const std::size_t first = buffer_.find_first_not_of(kSpace);
  if (first != std::string::npos && buffer_[first] != '{') {  // the tag in a sentence, or another form of calls
    add_text(out, space_);
    add_text(out, kOpen);
    after_call_ = false;
    leave_call(0);
    return true;
  }
  if (find_close()) {
    end_call(std::string_view(buffer_).substr(0, scan_), kClose, out);
    leave_call(scan_ + kClose.size());
    return true;
  }
  if (scan_ < kMaxCall) return false;
  end_call(std::string_view(buffer_).substr(0, scan_), "", out);
  leave_call(scan_);
  return true;
}

bool ToolCallParser::find_close() {
  for (; scan_ < std::min(buffer_.size(), kMaxCall); ++scan_) {
    const char c = buffer_[scan_];
    if (in_string_) {
      if (c == '"' && !escaped_) in_string_ = false;
      escaped_ = c == '\\' && !escaped_;
    } else if (c == '"') {
      in_string_ = strings_;
    } else if (c == '<') {
      const std::string_view here = std::string_view(buffer_).substr(scan_, kClose.size());
      if (here == kClose) return true;
      if (kClose.starts_with(here)) return false;
    }
  }
  return false;
}

void ToolCallParser::end_call(std::string_view body, std::string_view close, std::vector<ToolPiece>& out) {
  if (std::optional<ToolCall> call = body.size() < kMaxCall ? parse_call(body) : std::nullopt) {
    out.emplace_back(*std::move(call));
    after_call_ = true;
    return;
  }
  after_call_ = false;
  for (const std::string_view part : {std::string_view(space_), kOpen, body, close}) add_text(out, part);
}

void ToolCallParser::leave_call(std::size_t taken) {
  buffer_.erase(0, taken);
  space_.clear();
  scan_ = 0;
  in_call_ = in_string_ = escaped_ = false;
}

std::vector<ToolPiece> ToolCallParser::flush() {
  std::vector<ToolPiece> out;
  while (in_call_) {
    // A quote that is never closed hides every closing tag behind it; then tags count wherever they are.
    const std::size_t close = parse_call(buffer_) ? std::string::npos : buffer_.find(kClose);
    const bool closed = close != std::string::npos;
    const std::size_t end = closed ? close : buffer_.size();
    end_call(std::string_view(buffer_).substr(0, end), closed ? kClose : "", out);
    leave_call(end + (closed ? kClose.size() : 0));
    strings_ = false;
    while (in_call_ ? step_call(out) : step_text(out)) {
    }
  }
  if (!after_call_ || buffer_.find_first_not_of(kSpace) != std::string::npos) add_text(out, buffer_);
  *this = ToolCallParser();
  return out;
}

}  // namespace cadre::server
