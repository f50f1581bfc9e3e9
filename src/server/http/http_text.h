// The text of HTTP messages, without sockets: what a header block may hold, how a request target is read, how a reply's
// header is written. Pure functions, strict on purpose: what two servers could read differently is refused.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace cadre::server {

bool same_name(std::string_view a, std::string_view b);  // header names: the case of ASCII letters does not count
bool is_token(std::string_view text);                    // RFC 9110 token: a method or a header's name

// Looks for the end of a header block while its bytes arrive, and refuses at once what no header may hold: a NUL or
// other control character, a line that does not end in CR LF, a folded line.
class HeaderScan {
 public:
  enum class Found { kMore, kEnd, kBad };
  // `bytes` begins where the header block does and holds at least what earlier calls saw.
  Found scan(std::string_view bytes);
  std::size_t size() const { return seen_; }         // bytes of the block with its empty line, after kEnd
  std::string_view error() const { return error_; }  // after kBad

 private:
  std::size_t seen_ = 0;
  char last_ = '\n';
  bool first_line_ = true;
  bool line_empty_ = true;
  std::string_view error_;
};

// A request target: "/path?query", "http://host/path?query" (the host is not looked at), or "*" for OPTIONS. The path
// is percent-decoded and must then be UTF-8 without control characters.
struct HttpTarget {
  std::string path;
  std::string query;
};
Result<HttpTarget> parse_target(std::string_view method, std::string_view target);

// The line that begins a chunk (`after_chunk`: with the CR LF of the one before), or the last chunk with its trailers.
// kReady: all of it is there, to be parsed; kBad: it is malformed. Beast 1.81 goes on from half a last chunk against
// its own assertions and lets a quoted string run over the line's end, so its parser is only shown lines that are
// ready.
enum class ChunkLine : std::uint8_t { kMore, kReady, kBad };
ChunkLine look_at_chunk_line(std::string_view bytes, bool after_chunk);

std::string_view reason_phrase(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::int64_t unix_seconds);

// What a reply has after its header.
enum class BodyFraming {
  kNone,     // 204 and 304: no body and no length
  kLength,   // Content-Length
  kChunked,  // pieces, each with its size
  kClose,    // the end of the connection ends it
};

// The status line and all headers with the empty line. Headers that would break the message (a name that is no token, a
// value with a line break) or that are the server's own (Content-Length, Transfer-Encoding, Connection, Date) are left
// out; a Connection header may still ask for "close", see asks_close.
struct HeadOptions {
  int status = 200;
  BodyFraming framing = BodyFraming::kNone;
  std::size_t length = 0;
  bool keep_alive = true;
  bool http10 = false;  // the client speaks HTTP/1.0 and must be told of keep-alive
  std::string_view date;
};
void append_head(const HeadOptions& options, const HttpHeaders& headers, std::string& out);
bool asks_close(const HttpHeaders& headers);

}  // namespace cadre::server
