// RequestReader: the bytes of a connection into requests, within limits and without sockets. Boost.Beast's parser reads
// the messages; what it takes that two servers could read differently (two lengths, a length and chunks, folded lines,
// lone line feeds, no Host) is refused here before anyone sees the request.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace cadre::server {

class RequestReader {
 public:
  enum class State {
    kHeader,  // no complete header yet
    kBody,    // the header is complete and good, the body is not all here
    kDone,    // take() the request
    kError,   // see error_status; nothing more can be read from this connection
  };

  // `pauses`: feed() returns at the end of each header, before it reads any of the body; see paused().
  explicit RequestReader(const HttpLimits& limits, bool pauses = false);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Reads from the front of `bytes` and returns how many it used up. What it left belongs in front of the bytes of the
  // next call. Does not read past the end of one request.
  std::size_t feed(std::string_view bytes);

  State state() const { return state_; }
  // The last feed() ended with the header, which is good; the next one goes on with the body, if there is one.
  bool paused() const { return paused_; }
  // While paused: the request, without its body.
  HttpRequest& request() { return request_; }
  // Whether the request has begun: its first byte (not counting empty lines) was seen.
  bool begun() const { return begun_; }
  // After kBody: whether the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  std::size_t body_bytes() const { return request_.body.size(); }

  // After kDone, and after an error as far as known: how to answer.
  bool keep_alive() const { return keep_alive_; }
  bool http10() const { return http10_; }
  bool head() const { return request_.method == "HEAD"; }

  // After kDone: the request; the reader is ready for the next one.
  HttpRequest take();

  // Lets go of what has arrived of the body; nothing more can be read.
  void drop_body();

  // After kError: 400, 413, 417, 431, 501 or 505, and why.
  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

 private:
  class Parser;
  std::size_t read_header(std::string_view bytes);
  std::size_t read_body(std::string_view bytes);
  void check_header();
  void fail(int status, std::string message);
  void reset();

  const HttpLimits& limits_;
  const bool pauses_;
  std::unique_ptr<Parser> parser_;
  State state_ = State::kHeader;
  bool begun_ = false;
  bool paused_ = false;
  bool expects_continue_ = false;
  bool keep_alive_ = false;
  bool http10_ = false;
  std::size_t skipped_ = 0;  // empty lines before the request
  HttpRequest request_;
  int error_status_ = 0;
  std::string error_message_;
};

}  // namespace cadre::server
