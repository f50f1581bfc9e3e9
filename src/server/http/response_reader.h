// ResponseReader: the bytes of a connection into one reply, within limits and without sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/http_server.h"

namespace cadre::server {

class ResponseReader {
 public:
  struct Sink {
    std::function<void(int, const HttpHeaders&)> on_header;
    std::function<void(std::string_view)> on_data;
  };
  enum class State { kHeader, kBody, kDone, kError };

  // `to_head`: the reply to HEAD has no body, whatever its header says.
  ResponseReader(std::size_t max_header_bytes, std::size_t max_body_bytes, bool to_head, Sink sink);
  ~ResponseReader();
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  // Reads from the front and returns how much it used up; what is left belongs in front of the next call's bytes.
  std::size_t feed(std::string_view bytes);
  void finish();  // the connection has ended: kDone or kError after it
  State state() const { return state_; }
  bool keep_alive() const { return keep_alive_; }
  bool too_large() const { return too_large_; }
  const std::string& error() const { return error_; }

 private:
  class Parser;
  void fail(std::string message, bool too_large = false);

  const std::size_t max_header_bytes_, max_body_bytes_;
  const bool to_head_;
  const Sink sink_;
  std::unique_ptr<Parser> parser_;
  State state_ = State::kHeader;
  int interim_ = 0;  // 1xx replies passed over
  bool keep_alive_ = false;
  bool too_large_ = false;
  std::string error_;
};

}  // namespace cadre::server
