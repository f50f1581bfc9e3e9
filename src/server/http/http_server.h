// HttpServer: HTTP/1.1 over TCP, without meaning: it reads requests within limits, hands each to one handler, and sends
// what the handler replies, at once or piece by piece. One thread does all reading and writing.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cadre::server {

struct HttpLimits {
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 16 << 20;
  // Of all bodies that are still arriving. Over it, the one that has been arriving the longest is given up (408) if
  // that makes room, else the one that grows is refused (503).
  std::size_t max_pending_body_bytes = 512 << 20;
  // The same for those of one peer: an IPv4 address or an IPv6 network of 64 bits, whatever the port. A proxy is one
  // peer. 0: a quarter of max_pending_body_bytes, and at least one whole body.
  std::size_t max_pending_body_bytes_per_peer = 0;
  int max_connections = 4096;              // one more is answered with 503 and closed
  double header_timeout_s = 30;            // from the first byte of a request to the end of its header
  double body_timeout_s = 60;              // for the whole body
  double idle_timeout_s = 120;             // between the requests of a connection, and before its first
  double write_timeout_s = 60;             // without the client taking a byte
  std::size_t max_queued_bytes = 4 << 20;  // of one reply that the client does not read; then it is cut off
};

struct HttpRequest {
  std::string method;                                        // "GET"
  std::string path;                                          // decoded, without query: "/v1/models"
  std::string query;                                         // as sent, without "?"
  std::vector<std::pair<std::string, std::string>> headers;  // in order, names as sent
  std::string body;
  std::string peer;                     // the client's address, "127.0.0.1:53211"
  std::shared_ptr<const void> checked;  // what the check of the head leaves for the handler
  // The first header of this name, whatever its case; empty where there is none.
  std::string_view header(std::string_view name) const;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The answer to one request. Any thread may call, one at a time for one reply; calls never wait for the network. An
// object that goes away without an answer sends a 500; one that goes away between start and end closes the connection
// in a way that shows the client that something is missing. After the client is gone every call does nothing. HEAD gets
// the header only; a client of HTTP/1.0 gets pieces without chunks, and the end of the connection ends them. A status
// out of 200 to 599 becomes 500; headers that would break the message are left out.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // The whole answer. Content-Length, Date and Connection are added.
  virtual void send(int status, const HttpHeaders& headers, std::string body) = 0;
  // Or in pieces, chunked: start, any number of write, end.
  virtual void start(int status, const HttpHeaders& headers) = 0;
  // False once the client is gone or has let more than max_queued_bytes pile up (it is then cut off). One piece is
  // always taken when nothing waits, however large.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end() = 0;
  // Called once, on the server's thread, as soon as the client goes away before the answer was complete; at once, on
  // the caller's thread, where it already has. Never called after a complete answer (send or end was called). A later
  // call replaces the function. A client that closes its sending side counts as gone.
  virtual void on_disconnect(std::function<void()> call) = 0;
};

// Called on the server's thread: must not wait; long work belongs to other threads. An exception becomes a 500.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

// Looks at a request whose header is complete and good and of whose body nothing was read or waited for (head.body is
// empty, and a client that expects "100 Continue" has not been told to go on). A refusal is sent at once and ends the
// connection; the body is never kept. It may leave something in head.checked and change nothing else. Called on the
// server's thread, must not wait. An exception refuses with a 500.
struct HttpHeadRefusal {
  int status = 0;
  HttpHeaders headers;
  std::string body;
};
using HttpHeadCheck = std::function<std::optional<HttpHeadRefusal>(HttpRequest& head)>;

// What went wrong before a handler saw a request (malformed, too large, too slow): a status, and the text for people.
// Returns the body and its content type.
using HttpErrorBody = std::function<std::pair<std::string, std::string>(int status, std::string_view message)>;

struct HttpServerStats {
  std::int64_t connections = 0;  // open now
  std::int64_t accepted = 0;     // counter
  std::int64_t rejected = 0;     // counter: over max_connections
  std::int64_t malformed = 0;    // counter: answered before a handler saw them
  std::int64_t refused = 0;      // counter: by the check of the head
  std::int64_t given_up = 0;     // counter: bodies, to make room for others
};

class HttpServer {
 public:
  // Binds and listens; port 0 takes a free one. `host` is an address or a name that resolves to one.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& host, int port, const HttpLimits& limits,
                                                    HttpHandler handler, HttpErrorBody error_body,
                                                    HttpHeadCheck head_check = nullptr);
  virtual ~HttpServer() = default;  // stops; not from a handler, nor is stop() to be called there
  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "127.0.0.1:8000", "[::1]:8000"
  // Starts the thread.
  virtual void start() = 0;
  // No new connections and no further request on the open ones; running replies go on. Idle connections are closed, a
  // request that is not complete yet gets a 503.
  virtual void drain() = 0;
  // Waits until every reply is complete or the time is over, then closes what is left and ends the thread. Returns
  // whether every reply was complete.
  virtual bool stop(double wait_s) = 0;
  virtual HttpServerStats stats() const = 0;  // any thread
};

}  // namespace cadre::server
