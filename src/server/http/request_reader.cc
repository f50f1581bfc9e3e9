#include "server/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <new>
#include <optional>
#include <utility>

#include "server/http/http_text.h"

namespace cadre::server {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

namespace {

std::string_view view(BeastView text) { return {text.data(), text.size()}; }

// What the parser's errors mean to a client.
std::pair<int, const char*> explain(const error_code& ec) {
  if (ec == http::error::header_limit) return {431, "the header is too large"};
  if (ec == http::error::body_limit) return {413, "the body is too large"};
  if (ec == http::error::bad_method) return {400, "the method is not a token"};
  if (ec == http::error::bad_target) return {400, "the request target is malformed"};
  if (ec == http::error::bad_version) return {400, "the request line must end in HTTP/1.1 or HTTP/1.0"};
  if (ec == http::error::bad_field) return {400, "a header's name is malformed"};
  if (ec == http::error::bad_value) return {400, "a header's value is malformed"};
  if (ec == http::error::bad_content_length) return {400, "Content-Length is malformed"};
  if (ec == http::error::multiple_content_length) return {400, "there is more than one Content-Length"};
  if (ec == http::error::bad_transfer_encoding) return {400, "Transfer-Encoding is malformed"};
  if (ec == http::error::bad_chunk) return {400, "a chunk of the body is malformed"};
  if (ec == http::error::bad_chunk_extension) return {400, "a chunk extension is malformed"};
  if (ec == http::error::bad_line_ending) return {400, "a line must end in CR LF"};
  return {400, "the request is malformed"};
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "HTTP/2.0" and the like at the end of the request line: well-formed, and not ours.
bool other_version(std::string_view block) {
  const std::string_view line = block.substr(0, block.find('\r'));
  const std::size_t at = line.rfind(' ');
  if (at == std::string_view::npos) return false;
  const std::string_view version = line.substr(at + 1);
  return version.size() == 8 && version.substr(0, 5) == "HTTP/" && all_digits(version.substr(5, 1)) &&
         version[6] == '.' && all_digits(version.substr(7)) && version[5] != '1';
}

}  // namespace

class RequestReader::Parser : public http::basic_parser<true> {
 public:
  Parser(HttpRequest& request, const HttpLimits& limits) : request_(request), extension_room_(limits.max_header_bytes) {
    // What arrives is looked at by HeaderScan first, so the parser's own limit never is the one that strikes.
    header_limit(static_cast<std::uint32_t>(std::min<std::size_t>(limits.max_header_bytes, 1u << 30) + 16));
    body_limit(limits.max_body_bytes);
  }

  HeaderScan scan;
  std::string target;
  int version = 11;
  bool chunk_line = false;  // the last put() read the line before a chunk, or the end with its trailers
  bool after_chunk = false;
  std::uint64_t chunk_left = 0;
  int hosts = 0, lengths = 0, codings = 0, expectations = 0;
  std::string host, length, coding, expectation;

 private:
  void on_request_impl(http::verb, BeastView method, BeastView raw_target, int http_version, error_code&) override {
    request_.method = view(method);
    target = view(raw_target);
    version = http_version;
  }
  void on_response_impl(int, BeastView, int, error_code&) override {}
  void on_field_impl(http::field field, BeastView name, BeastView value, error_code&) override {
    if (in_body_) return;  // trailers: nothing we know of uses them, and they must not pass for headers
    const auto count = [&](int& seen, std::string& kept) {
      ++seen;
      kept = view(value);
    };
    if (field == http::field::host) count(hosts, host);
    if (field == http::field::content_length) count(lengths, length);
    if (field == http::field::transfer_encoding) count(codings, coding);
    if (field == http::field::expect) count(expectations, expectation);
    request_.headers.emplace_back(view(name), view(value));
  }
  void on_header_impl(error_code&) override { in_body_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(BeastView bytes, error_code&) override {
    request_.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, BeastView extensions, error_code& ec) override {
    chunk_left = size;
    chunk_line = true;
    // They mean nothing to us; a client must not be able to send them without end.
    if (extensions.size() > extension_room_) {
      ec = http::error::bad_chunk_extension;
      return;
    }
    extension_room_ -= extensions.size();
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView bytes, error_code&) override {
    request_.body.append(bytes.data(), bytes.size());
    chunk_left -= bytes.size();
    after_chunk = true;
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}

  HttpRequest& request_;
  std::size_t extension_room_;
  bool in_body_ = false;
};

RequestReader::RequestReader(const HttpLimits& limits, bool pauses) : limits_(limits), pauses_(pauses) {}
RequestReader::~RequestReader() = default;

void RequestReader::fail(int status, std::string message) {
  state_ = State::kError;
  keep_alive_ = false;
  error_status_ = status;
  error_message_ = std::move(message);
  drop_body();
}

void RequestReader::drop_body() {
  std::string().swap(request_.body);  // an assignment would keep the memory
  if (state_ != State::kError) state_ = State::kDone;
}

void RequestReader::reset() {
  parser_.reset();
  state_ = State::kHeader;
  begun_ = expects_continue_ = keep_alive_ = http10_ = false;
  skipped_ = 0;
  request_ = {};
}

HttpRequest RequestReader::take() {
  HttpRequest request = std::move(request_);
  reset();
  return request;
}

std::size_t RequestReader::feed(std::string_view bytes) {
  std::size_t used = 0;
  paused_ = false;
  try {
    while (used < bytes.size() && (state_ == State::kHeader || state_ == State::kBody)) {
      const std::string_view rest = bytes.substr(used);
      const State before = state_;
      const std::size_t n = before == State::kHeader ? read_header(rest) : read_body(rest);
      used += n;
      if (n == 0 && state_ == before) break;  // needs more
      paused_ = pauses_ && before == State::kHeader && (state_ == State::kBody || state_ == State::kDone);
      if (paused_) break;
    }
  } catch (const std::bad_alloc&) {
    fail(503, "the server is short of memory");
  } catch (...) {
    fail(400, "the request is malformed");
  }
  return used;
}

std::size_t RequestReader::read_header(std::string_view bytes) {
  std::size_t skip = 0;
  if (!begun_) {
    // RFC 9112 2.2: empty lines before a request are passed over. Only whole ones, and only a few.
    while (bytes.substr(skip, 2) == "\r\n") skip += 2;
    skipped_ += skip;
    if (skipped_ > limits_.max_header_bytes) {
      fail(400, "the request line is missing");
      return skip;
    }
    if (skip == bytes.size() || (bytes[skip] == '\r' && skip + 1 == bytes.size())) return skip;
    begun_ = true;
    parser_ = std::make_unique<Parser>(request_, limits_);
    if (skip > 0) return skip;
  }
  const std::string_view allowed = bytes.substr(0, limits_.max_header_bytes);
  const HeaderScan::Found found = parser_->scan.scan(allowed);
  if (found == HeaderScan::Found::kBad) {
    fail(400, std::string(parser_->scan.error()));
    return 0;
  }
  if (found == HeaderScan::Found::kMore) {
    if (bytes.size() >= limits_.max_header_bytes) {
      fail(431, "the header is larger than " + std::to_string(limits_.max_header_bytes) + " bytes");
    }
    return 0;
  }
  const std::string_view block = bytes.substr(0, parser_->scan.size());
  error_code ec;
  parser_->put(boost::asio::const_buffer(block.data(), block.size()), ec);
  if (ec == http::error::body_limit) {
    fail(413, "the body is larger than " + std::to_string(limits_.max_body_bytes) + " bytes");
  } else if (ec == http::error::bad_version && other_version(block)) {
    fail(505, "this server speaks HTTP/1.1 and HTTP/1.0");
  } else if (ec) {
    const auto [status, message] = explain(ec);
    fail(status, message);
  } else if (!parser_->is_header_done()) {
    fail(400, "the request is malformed");
  } else {
    check_header();
  }
  return block.size();
}

void RequestReader::check_header() {
  const Parser& p = *parser_;
  http10_ = p.version < 11;
  if (p.lengths > 0 && p.codings > 0)
    return fail(400, "a request must not have both Content-Length and Transfer-Encoding");
  if (p.lengths > 1) return fail(400, "there is more than one Content-Length");
  if (p.lengths == 1 && !all_digits(p.length)) return fail(400, "Content-Length must be a number");
  if (p.codings > 1) return fail(400, "there is more than one Transfer-Encoding");
  if (p.codings == 1) {
    if (http10_) return fail(400, "HTTP/1.0 knows no Transfer-Encoding");
    if (!same_name(p.coding, "chunked")) return fail(501, "the only Transfer-Encoding understood is chunked");
  }
  if (p.hosts > 1) return fail(400, "there is more than one Host");
  if (p.hosts == 0 && !http10_) return fail(400, "Host is missing");
  if (p.host.find_first_of(" \t,/@") != std::string::npos) return fail(400, "Host is malformed");
  auto target = parse_target(request_.method, p.target);
  if (!target.ok()) return fail(400, target.status().message());
  request_.path = std::move(target->path);
  request_.query = std::move(target->query);
  if (p.expectations > 0 && !http10_) {  // RFC 9110 10.1.1: HTTP/1.0 clients do not expect anything
    if (p.expectations > 1 || !same_name(p.expectation, "100-continue")) {
      return fail(417, "the only expectation understood is 100-continue");
    }
    expects_continue_ = true;
  }
  keep_alive_ = p.keep_alive();
  state_ = p.is_done() ? State::kDone : State::kBody;
}

std::size_t RequestReader::read_body(std::string_view bytes) {
  error_code ec;
  parser_->chunk_line = false;
  std::size_t n = 0;
  const ChunkLine line = parser_->codings == 0 || parser_->chunk_left > 0
                             ? ChunkLine::kReady
                             : look_at_chunk_line(bytes, parser_->after_chunk);
  if (line == ChunkLine::kReady) {
    n = parser_->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
  } else {
    expects_continue_ = false;
    ec = line == ChunkLine::kMore ? http::error::need_more : http::error::bad_chunk;
  }
  if (n > 0) expects_continue_ = false;  // it did not wait
  if (ec == http::error::need_more) {
    // The line that begins a chunk, or the trailers, which are left in the buffer until they are complete.
    if (bytes.size() > limits_.max_header_bytes) fail(431, "a chunk header or the trailers are too large");
    return n;
  }
  if (parser_->chunk_line && n > limits_.max_header_bytes) {
    fail(431, "a chunk header or the trailers are too large");
  } else if (ec == http::error::body_limit) {
    fail(413, "the body is larger than " + std::to_string(limits_.max_body_bytes) + " bytes");
  } else if (ec) {
    const auto [status, message] = explain(ec);
    fail(status, message);
  } else if (parser_->is_done()) {
    state_ = State::kDone;
  }
  return n;
}

}  // namespace cadre::server
