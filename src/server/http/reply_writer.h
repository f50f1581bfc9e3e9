// ReplyWriter: what a ReplyState gave, as the bytes of an HTTP/1.1 message. No sockets.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/http_text.h"
#include "server/http/reply_state.h"

namespace cadre::server {

class ReplyWriter {
 public:
  // A new reply: to HEAD or not, to a client of HTTP/1.0 or not, and whether the connection ends after it anyway.
  void begin(bool head, bool http10, bool close);

  struct Context {
    bool closing = false;  // the server shuts down
    std::string_view date;
    std::function<std::pair<std::string, std::string>(int, std::string_view)> error_body;
  };
  // Takes what piled up. Only when idle(). False: the client let too much pile up.
  bool take(ReplyState& reply, const Context& context);

  bool idle() const { return at_ == size(); }    // everything taken was sent
  bool last() const { return last_; }            // and nothing comes after it
  bool truncated() const { return truncated_; }  // the maker left in the middle
  bool close() const { return close_; }          // the connection ends after this reply
  bool ends_with_connection() const { return framing_ == BodyFraming::kClose; }

  std::array<std::string_view, 3> rest() const;  // what is to be sent
  void advance(std::size_t bytes, ReplyState& reply);
  void clear();  // after idle(): ready for more of the same reply
  void shrink(std::size_t capacity);

 private:
  std::size_t size() const { return front_.size() + data_.size() + back_.size(); }
  std::size_t data_sent() const;

  bool head_ = false, http10_ = false, close_ = false, last_ = false, truncated_ = false;
  BodyFraming framing_ = BodyFraming::kNone;
  std::string front_, data_, back_;  // the header and a chunk's size; the body's bytes; what closes the chunk
  std::size_t at_ = 0;               // sent of all three
};

}  // namespace cadre::server
