#include "server/http/reply_writer.h"

#include <algorithm>
#include <cstdio>

namespace cadre::server {

void ReplyWriter::begin(bool head, bool http10, bool close) {
  head_ = head;
  http10_ = http10;
  close_ = close;
  last_ = truncated_ = false;
  framing_ = BodyFraming::kNone;
  clear();
}

void ReplyWriter::clear() {
  front_.clear();
  data_.clear();
  back_.clear();
  at_ = 0;
}

void ReplyWriter::shrink(std::size_t capacity) {
  for (std::string* buffer : {&front_, &data_}) {
    if (buffer->capacity() > capacity) std::string().swap(*buffer);
  }
}

bool ReplyWriter::take(ReplyState& reply, const Context& context) {
  ReplyState::Taken piece = reply.take(data_);
  if (piece.cut) return false;
  if (piece.unanswered) {
    auto [body, type] = context.error_body(500, "the server failed to answer");
    piece.head = piece.whole = true;
    piece.status = 500;
    piece.headers = {{"Content-Type", std::move(type)}};
    data_ = std::move(body);
  }
  if (piece.head) {
    if (piece.status == 204 || piece.status == 304) {
      framing_ = BodyFraming::kNone;
    } else if (piece.whole) {
      framing_ = BodyFraming::kLength;
    } else {
      framing_ = http10_ && !head_ ? BodyFraming::kClose : BodyFraming::kChunked;
    }
    close_ = close_ || context.closing || framing_ == BodyFraming::kClose || asks_close(piece.headers);
    append_head({.status = piece.status,
                 // A header alone, for HEAD to HTTP/1.0, must not speak of chunks.
                 .framing = http10_ && framing_ == BodyFraming::kChunked ? BodyFraming::kNone : framing_,
                 .length = data_.size(),
                 .keep_alive = !close_,
                 .http10 = http10_,
                 .date = context.date},
                piece.headers, front_);
  }
  if (head_ || framing_ == BodyFraming::kNone) {
    reply.sent(data_.size());
    data_.clear();
  } else if (framing_ == BodyFraming::kChunked) {
    if (!data_.empty()) {
      std::array<char, 20> line{};
      const int n = std::snprintf(line.data(), line.size(), "%zx\r\n", data_.size());
      front_.append(line.data(), static_cast<std::size_t>(n));
      back_ = "\r\n";
    }
    if (piece.ended && !piece.truncated) back_ += "0\r\n\r\n";
  }
  last_ = piece.ended;
  truncated_ = piece.truncated;
  return true;
}

std::array<std::string_view, 3> ReplyWriter::rest() const {
  std::size_t begin = 0;
  const auto part = [&](std::string_view all) {
    const std::size_t skip = std::min(all.size(), at_ > begin ? at_ - begin : 0);
    begin += all.size();
    return all.substr(skip);
  };
  return {part(front_), part(data_), part(back_)};
}

std::size_t ReplyWriter::data_sent() const {
  return std::clamp(at_, front_.size(), front_.size() + data_.size()) - front_.size();
}

void ReplyWriter::advance(std::size_t bytes, ReplyState& reply) {
  const std::size_t before = data_sent();
  at_ += bytes;
  if (data_sent() > before) reply.sent(data_sent() - before);
}

}  // namespace cadre::server
