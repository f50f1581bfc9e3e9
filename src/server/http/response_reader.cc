#include "server/http/response_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <exception>
#include <utility>

#include "server/http/http_text.h"

namespace cadre::server {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

namespace {
constexpr int kMaxInterim = 16;
}

class ResponseReader::Parser : public http::basic_parser<false> {
 public:
  explicit Parser(const ResponseReader& reader) : reader_(reader) {
    header_limit(static_cast<std::uint32_t>(std::min<std::size_t>(reader.max_header_bytes_, 1u << 30)));
    body_limit(boost::none);  // counted below: an exact limit, whatever the framing
    skip(reader.to_head_);
  }
  int status = 0;
  bool chunked_body = false, after_chunk = false;
  std::uint64_t chunk_left = 0;
  ChunkLine look(std::string_view bytes) const {
    return !chunked_body || chunk_left > 0 ? ChunkLine::kReady : look_at_chunk_line(bytes, after_chunk);
  }

 private:
  void on_request_impl(http::verb, BeastView, BeastView, int, error_code&) override {}
  void on_response_impl(int code, BeastView, int, error_code&) override { status = code; }
  void on_field_impl(http::field, BeastView name, BeastView value, error_code&) override {
    if (!in_body_) headers_.emplace_back(std::string(name), std::string(value));
  }
  void on_header_impl(error_code&) override {
    in_body_ = true;
    chunked_body = chunked();
    if (status >= 200 && reader_.sink_.on_header) reader_.sink_.on_header(status, headers_);
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(BeastView bytes, error_code& ec) override { return pass(bytes, ec); }
  void on_chunk_header_impl(std::uint64_t size, BeastView, error_code&) override { chunk_left = size; }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView bytes, error_code& ec) override {
    const std::size_t n = pass(bytes, ec);
    chunk_left -= n;
    after_chunk = true;
    return n;
  }
  void on_finish_impl(error_code&) override {}

  std::size_t pass(BeastView bytes, error_code& ec) {
    seen_ += bytes.size();
    if (seen_ > reader_.max_body_bytes_) {
      ec = http::error::body_limit;
      return 0;
    }
    if (!bytes.empty() && reader_.sink_.on_data) reader_.sink_.on_data({bytes.data(), bytes.size()});
    return bytes.size();
  }

  const ResponseReader& reader_;
  HttpHeaders headers_;
  std::size_t seen_ = 0;
  bool in_body_ = false;
};

ResponseReader::ResponseReader(std::size_t max_header_bytes, std::size_t max_body_bytes, bool to_head, Sink sink)
    : max_header_bytes_(max_header_bytes),
      max_body_bytes_(max_body_bytes),
      to_head_(to_head),
      sink_(std::move(sink)),
      parser_(std::make_unique<Parser>(*this)) {}
ResponseReader::~ResponseReader() = default;

void ResponseReader::fail(std::string message, bool too_large) {
  state_ = State::kError;
  keep_alive_ = false;
  too_large_ = too_large;
  error_ = std::move(message);
}

std::size_t ResponseReader::feed(std::string_view bytes) {
  std::size_t used = 0;
  try {
    while (used < bytes.size() && (state_ == State::kHeader || state_ == State::kBody)) {
      const std::string_view rest = bytes.substr(used);
      error_code ec;
      std::size_t n = 0;
      const ChunkLine line = parser_->look(rest);
      if (line == ChunkLine::kReady) {
        n = parser_->put(boost::asio::const_buffer(rest.data(), rest.size()), ec);
      } else {
        ec = line == ChunkLine::kMore ? http::error::need_more : http::error::bad_chunk;
      }
      used += n;
      if (ec == http::error::need_more) {
        if (rest.size() - n > max_header_bytes_) fail("the reply's header is too large", true);
        break;
      }
      if (ec == http::error::body_limit) {
        fail("the reply's body is larger than " + std::to_string(max_body_bytes_) + " bytes", true);
      } else if (ec == http::error::header_limit) {
        fail("the reply's header is too large", true);
      } else if (ec) {
        fail("the reply is malformed: " + ec.message());
      } else if (state_ == State::kHeader && parser_->is_header_done()) {
        if (parser_->status == 101 || (parser_->status < 200 && ++interim_ > kMaxInterim)) {
          fail("the reply is malformed: unexpected status " + std::to_string(parser_->status));
        } else if (parser_->status < 200) {
          parser_ = std::make_unique<Parser>(*this);
          continue;
        } else {
          keep_alive_ = parser_->keep_alive();
          state_ = parser_->is_done() ? State::kDone : State::kBody;
        }
      } else if (parser_->is_done()) {
        state_ = State::kDone;
      } else if (n == 0) {
        break;
      }
    }
  } catch (const std::exception& e) {
    fail(std::string("reading the reply: ") + e.what());
  } catch (...) {
    fail("reading the reply: unknown exception");
  }
  return used;
}

void ResponseReader::finish() {
  if (state_ == State::kDone || state_ == State::kError) return;
  keep_alive_ = false;
  error_code ec;
  if (state_ == State::kBody) parser_->put_eof(ec);
  if (state_ == State::kBody && !ec && parser_->is_done()) {
    state_ = State::kDone;
  } else {
    fail("the server closed the connection before the reply was complete");
  }
}

}  // namespace cadre::server
