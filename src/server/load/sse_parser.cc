#include "server/load/sse_parser.h"

namespace cadre::server {

void SseParser::line(const std::function<void(std::string_view)>& on_event) {
  if (line_.empty()) {
    if (has_data_) on_event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  // Lines that begin with a colon are comments; other fields say nothing of the data.
  const std::size_t colon = line_.find(':');
  if (line_.compare(0, colon, "data") == 0) {
    std::string_view value;
    if (colon != std::string::npos) value = std::string_view(line_).substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
  line_.clear();
}

bool SseParser::feed(std::string_view bytes, const std::function<void(std::string_view)>& on_event) {
  while (!failed_ && !bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const std::size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > max_bytes_) failed_ = true;
    if (failed_ || end == std::string_view::npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    line(on_event);
  }
  return !failed_;
}

}  // namespace cadre::server
