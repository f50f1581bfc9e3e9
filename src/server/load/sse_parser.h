// Server-sent events: the stream's bytes in, however they are cut, the data of each event out.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace cadre::server {

class SseParser {
 public:
  explicit SseParser(std::size_t max_event_bytes = 4 << 20) : max_bytes_(max_event_bytes) {}

  // False after an event larger than the limit; nothing more is read then.
  bool feed(std::string_view bytes, const std::function<void(std::string_view data)>& on_event);

 private:
  void line(const std::function<void(std::string_view)>& on_event);

  std::size_t max_bytes_;
  std::string line_, data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was '\r', which a '\n' may follow
  bool failed_ = false;
};

}  // namespace cadre::server
