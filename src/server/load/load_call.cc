#include "server/load/load_call.h"

#include <algorithm>
#include <utility>

#include "io/json.h"

namespace cadre::server {
namespace {

constexpr std::size_t kMaxErrorBody = 16 << 10, kMaxErrorText = 300;

std::string shortened(std::string text) {
  if (text.size() > kMaxErrorText) text = text.substr(0, kMaxErrorText) + "...";
  return text;
}

// OpenAI's {"error": {"message": ...}}, the older {"object": "error", "message": ...}, {"detail": ...} of others.
std::string message_of(const Json& json) {
  const Json* error = json.find("error");
  if (error != nullptr && error->is_string()) return *error->as_string("error");
  if (error == nullptr || !error->is_object()) error = &json;
  for (const char* key : {"message", "detail"}) {
    const Json* text = error->find(key);
    if (text != nullptr && text->is_string()) return *text->as_string(key);
  }
  return "";
}

bool has_text(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr && ((value->is_string() && !value->as_string(key)->empty()) || !value->items().empty());
}

}  // namespace

StreamPiece read_piece(std::string_view data) {
  StreamPiece piece;
  if (data == "[DONE]") {
    piece.is_end = true;
    return piece;
  }
  const Result<Json> json = Json::parse(data, "event");
  if (!json.ok()) {
    piece.error = shortened(json.status().message());
    return piece;
  }
  if (json->has("error")) {
    const std::string message = message_of(*json);
    piece.error = message.empty() ? "error without a message" : shortened(message);
    return piece;
  }
  if (const Json* choices = json->find("choices")) {
    for (const Json& choice : choices->items()) {
      if (choice.has("finish_reason")) piece.finished = true;
      if (has_text(choice, "text")) piece.has_token = true;
      const Json* delta = choice.find("delta");
      if (delta == nullptr) continue;
      for (const char* key : {"content", "reasoning_content", "reasoning", "tool_calls"}) {
        if (has_text(*delta, key)) piece.has_token = true;
      }
    }
  }
  if (const Json* usage = json->find("usage"); usage != nullptr && usage->is_object()) {
    const Result<std::int64_t> prompt = usage->get_int("prompt_tokens", 0);
    const Result<std::int64_t> output = usage->get_int("completion_tokens", 0);
    if (prompt.ok()) piece.prompt_tokens = *prompt;
    if (output.ok()) piece.output_tokens = *output;
  }
  return piece;
}

std::string error_text(int http_status, std::string_view body) {
  const Result<Json> json = Json::parse(body, "reply");
  std::string message = json.ok() ? message_of(*json) : "";
  if (message.empty()) message = body.substr(0, body.find('\n'));
  return std::to_string(http_status) + (message.empty() ? "" : ": " + shortened(std::move(message)));
}

void LoadCall::event(std::string_view data, double now) {
  if (ended_ || !record_.error.empty()) return;
  const StreamPiece piece = read_piece(data);
  record_.error = piece.error;
  if (piece.is_end) ended_ = true;
  if (piece.prompt_tokens) record_.prompt_tokens = *piece.prompt_tokens;
  if (piece.output_tokens) {
    record_.output_tokens = *piece.output_tokens;
    record_.counted_by_server = true;
  }
  if (piece.has_token) {
    if (pieces_++ == 0) {
      record_.first = now;
    } else {
      record_.intervals.push_back(static_cast<float>(now - record_.last));
    }
    record_.last = now;
  } else if (piece.finished && pieces_ == 0) {
    // An answer without text: its end token was the first.
    record_.first = record_.last = now;
    pieces_ = 1;
  }
}

bool LoadCall::data(std::string_view bytes, double now) {
  if (http_status_ != 200) {
    body_ += bytes.substr(0, kMaxErrorBody - std::min(body_.size(), kMaxErrorBody));
    return true;
  }
  if (!parser_.feed(bytes, [&](std::string_view data) { event(data, now); }) && record_.error.empty()) {
    record_.error = "an event of the answer is too large";
  }
  return record_.error.empty();
}

LoadRecord LoadCall::done(const Status& transport, double now) {
  if (record_.error.empty() && !transport.ok()) record_.error = shortened(transport.message());
  if (record_.error.empty() && http_status_ != 200) record_.error = error_text(http_status_, body_);
  if (record_.error.empty() && !ended_) record_.error = "the answer ended before its end";
  if (record_.error.empty() && pieces_ == 0) record_.error = "the answer holds nothing";
  if (!record_.error.empty()) record_.last = now;
  if (!record_.counted_by_server) record_.output_tokens = pieces_;
  return std::move(record_);
}

}  // namespace cadre::server
