// HttpClient: many HTTP/1.1 calls at once over kept connections, for the load tool and the tests. Plain http only. One
// thread does all reading and writing and runs the callbacks.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace cadre::server {

struct HttpClientOptions {
  int max_connections = 1024;  // further calls wait for one to be free
  double connect_timeout_s = 10;
  std::size_t max_header_bytes = 64 << 10;
};

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";  // put after the URL's prefix; a path, and a query if there is one
  HttpHeaders headers;       // Host, Content-Length and User-Agent are added
  std::string body;
  double timeout_s = 600;       // from request() to on_done
  double idle_timeout_s = 300;  // without a byte from the server
  std::size_t max_body_bytes = 64 << 20;
};

// Called on the client's thread; must not wait. An exception from them ends the call.
struct HttpCallbacks {
  std::function<void(int status, const HttpHeaders& headers)> on_header;
  std::function<void(std::string_view bytes)> on_data;  // the body as it arrives, without chunk marks
  // Once for each call, last. Ok: the reply was complete, whatever its status. kCancelled: cancel() or the client's
  // end. kLimitExceeded: too slow or too large. kNotFound: no connection. kInvalidFile: cut off or malformed.
  std::function<void(Status)> on_done;
};

struct HttpAnswer {
  int status = 0;
  HttpHeaders headers;
  std::string body;
  std::string_view header(std::string_view name) const;
};

class HttpClient {
 public:
  // `url`: http://host[:port][/prefix]. The host is resolved here, once.
  static Result<std::unique_ptr<HttpClient>> create(const std::string& url, const HttpClientOptions& options = {});
  virtual ~HttpClient() = default;  // cancels what still runs, after its on_done calls
  // Any thread. Returns the call's number, for cancel.
  virtual std::uint64_t request(HttpCall call, HttpCallbacks callbacks) = 0;
  // Any thread. on_done says kCancelled unless the call was already complete.
  virtual void cancel(std::uint64_t call) = 0;
  // The same, waiting for the whole answer. Not from a callback.
  Result<HttpAnswer> fetch(HttpCall call);
  virtual std::int64_t connections_made() const = 0;  // any thread
};

}  // namespace cadre::server
