// One request of a load: what comes back, turned into a LoadRecord.
#pragma once

#include <cadre/status.h>

#include <optional>
#include <string>
#include <string_view>

#include "server/load/load_report.h"
#include "server/load/sse_parser.h"

namespace cadre::server {

// What one event of a streamed answer says.
struct StreamPiece {
  bool has_token = false;  // text, reasoning or a part of a tool call
  bool is_end = false;     // "[DONE]"
  bool finished = false;   // a finish_reason came
  std::optional<std::int64_t> prompt_tokens, output_tokens;
  std::string error;
};
StreamPiece read_piece(std::string_view data);

// "429: queue full": of a reply that is no stream.
std::string error_text(int http_status, std::string_view body);

class LoadCall {
 public:
  explicit LoadCall(LoadRecord record) : record_(std::move(record)) {}

  void header(int http_status) { http_status_ = http_status; }
  // False: the answer is not worth waiting for.
  bool data(std::string_view bytes, double now);
  // The connection's end, with what went wrong with it. To be called once.
  LoadRecord done(const Status& transport, double now);

 private:
  void event(std::string_view data, double now);

  LoadRecord record_;
  SseParser parser_;
  int http_status_ = 0;
  std::string body_;  // of an error, cut
  std::int64_t pieces_ = 0;
  bool ended_ = false;
};

}  // namespace cadre::server
