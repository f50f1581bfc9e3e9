#include <poll.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>

#include "server/http/http_server_impl.h"

namespace cadre::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kHeldBytes = 16 << 10;    // what a client may send ahead while its reply is made
constexpr std::size_t kKeptCapacity = 4 << 10;  // of buffers of a connection that waits for its next request
constexpr double kLingerSeconds = 2;            // for the client to read the last reply before its data is refused
constexpr double kProbeSeconds = 1;             // between looks for a hang-up while reading is paused

// Who shares a peer's part of what may be pending. Of IPv6 one host has a whole network to itself.
std::string peer_key(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const auto bytes = address.to_v6().to_bytes();
  if (address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  return std::string(bytes.begin(), bytes.begin() + 8);
}

}  // namespace

// --- Connection: reading ---------------------------------------------------------------------------------------------

void HttpConnection::open(bool reject) {
  guarded([&] {
    rejected_ = reject;
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    socket_.non_blocking(true);
    const tcp::endpoint peer = socket_.remote_endpoint(ignored);
    const std::string host = peer.address().to_string();
    peer_ = (peer.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(peer.port());
    peer_key_ = peer_key(peer.address());
    if (reject) return refuse(503, "too many connections, try again later");
    wait_for(Wait::kIdle);
    wait_readable();
  });
}

// Waits without a buffer, so that an idle connection costs none.
void HttpConnection::wait_readable() {
  if (read_waits_ || eof_ || mode_ == Mode::kClosed) return;
  if (mode_ == Mode::kReplying && held() >= kHeldBytes) {
    if (probe_deadline_ == kHttpNever) probe_deadline_ = HttpClock::now() + http_seconds(kProbeSeconds);
    return;
  }
  probe_deadline_ = kHttpNever;
  read_waits_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& ec) {
    self->read_waits_ = false;
    if (self->mode_ == Mode::kClosed) return;
    self->guarded([&] { ec ? self->close() : self->on_readable(); });
  });
}

void HttpConnection::on_readable() {
  const std::size_t room = mode_ == Mode::kReplying ? kHeldBytes - std::min(held(), kHeldBytes) : kHttpScratchBytes;
  if (room == 0) return wait_readable();
  error_code ec;
  const std::size_t n = socket_.read_some(asio::buffer(server_.scratch_.data(), std::min(room, kHttpScratchBytes)), ec);
  if (ec == asio::error::would_block || ec == asio::error::try_again) return wait_readable();
  if (ec == asio::error::eof) return on_eof();
  if (ec) return close();
  if (mode_ == Mode::kLingering) {
    if (n >= linger_left_) return close();
    linger_left_ -= n;
  } else {
    in_.append(server_.scratch_.data(), n);
  }
  if (mode_ == Mode::kReading) process();
  wait_readable();
}

// A client that closes cannot be told from one that will not send more. While a reply is made it counts as gone, so
// that work for nobody stops; what is already answered, and what can be answered at once, is still sent.
void HttpConnection::on_eof() {
  eof_ = true;
  if (mode_ == Mode::kLingering) return close();
  if (mode_ == Mode::kReplying && !reply_->ended()) return close();
  if (mode_ == Mode::kReading) process();
}

void HttpConnection::process() {
  if (held() > 0) {
    do {
      in_at_ += reader_.feed(std::string_view(in_).substr(in_at_));
    } while (reader_.paused() && admitted());
    if (mode_ != Mode::kReading) return;  // refused
    if (held() == 0) {
      in_.clear();
      in_at_ = 0;
      if (in_.capacity() > kKeptCapacity && reader_.state() != RequestReader::State::kBody) std::string().swap(in_);
    } else if (in_at_ > in_.size() / 2) {
      in_.erase(0, in_at_);
      in_at_ = 0;
    }
    const bool room = account_body();
    if (reader_.state() == RequestReader::State::kError) {
      ++server_.malformed_;
      return refuse(reader_.error_status(), reader_.error_message());
    }
    if (!room) return refuse(503, "too many large requests at once, try again later");
    if (reader_.state() == RequestReader::State::kDone) return dispatch();
  }
  if (eof_) {
    if (!reader_.begun()) return close();
    ++server_.malformed_;
    return refuse(400, "the request is not complete");
  }
  if (reader_.expects_continue() && !continued_) {
    continued_ = true;
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    error_code ec;
    // All earlier replies are sent, so this always fits.
    if (socket_.write_some(asio::buffer(kContinue), ec) != kContinue.size() || ec) return close();
  }
  wait_for(reader_.state() == RequestReader::State::kBody ? Wait::kBody
           : reader_.begun()                              ? Wait::kHeader
                                                          : Wait::kIdle);
}

// Asks whether the header that just ended is good enough to read on. What came behind it waits in in_.
bool HttpConnection::admitted() {
  std::optional<HttpHeadRefusal> refusal;
  try {
    reader_.request().peer = peer_;
    refusal = server_.head_check_(reader_.request());
  } catch (...) {
    refuse(500, "the server failed to answer");
    return false;
  }
  if (!refusal) return true;
  ++server_.refused_;
  refuse(refusal->status, refusal->headers, std::move(refusal->body));
  return false;
}

// False if there is no room for it.
bool HttpConnection::account_body() {
  if (reader_.state() != RequestReader::State::kBody) {
    end_body();
    return true;
  }
  if (!body_) body_ = server_.bodies_.begin(peer_key_, [this] { give_up(); });
  return server_.bodies_.grow(*body_, reader_.body_bytes());
}

void HttpConnection::end_body() {
  if (const auto body = std::exchange(body_, std::nullopt)) server_.bodies_.end(*body);
}

void HttpConnection::give_up() {
  ++server_.given_up_;
  guarded([&] { refuse(408, "the body took too long, and others needed the room"); });
}

void HttpConnection::dispatch() {
  if (server_.draining_) return refuse(503, "the server is shutting down");
  out_.begin(reader_.head(), reader_.http10(), !reader_.keep_alive());
  HttpRequest request = reader_.take();
  request.peer = peer_;
  begin_reply();
  const std::shared_ptr<ReplyState> reply = reply_;
  try {
    server_.handler_(std::move(request), std::make_shared<ReplyHandle>(reply));
  } catch (...) {
    reply->abandon();
  }
  if (mode_ == Mode::kReplying && eof_ && !reply->ended()) close();
}

// --- Connection: replying --------------------------------------------------------------------------------------------

void HttpConnection::begin_reply() {
  wait_for(Wait::kNone);
  continued_ = false;
  auto wake = [io = server_.io_, weak = weak_from_this()] {
    asio::post(*io, [weak] {
      const auto self = weak.lock();
      if (self && self->mode_ == Mode::kReplying) self->guarded([&] { self->flush(); });
    });
  };
  reply_ = std::make_shared<ReplyState>(std::move(wake), server_.limits_.max_queued_bytes);
  mode_ = Mode::kReplying;
  server_.reply_begins();
}

// An answer of the server itself, after which the connection ends.
void HttpConnection::refuse(int status, std::string_view message) {
  auto [body, type] = server_.error_body(status, message);
  HttpHeaders headers = {{"Content-Type", std::move(type)}};
  if (status == 503) headers.emplace_back("Retry-After", "1");
  refuse(status, headers, std::move(body));
}

void HttpConnection::refuse(int status, const HttpHeaders& headers, std::string body) {
  out_.begin(reader_.head(), reader_.http10(), true);
  std::string().swap(in_);
  in_at_ = 0;
  reader_.drop_body();
  end_body();
  begin_reply();
  reply_->send(status, headers, std::move(body));
}

void HttpConnection::flush() {
  if (write_waits_ && reply_->cut()) return close();
  if (write_waits_ || out_.last()) return;
  const ReplyWriter::Context context{
      .closing = server_.draining_, .date = server_.date(), .error_body = [this](int status, std::string_view message) {
        return server_.error_body(status, message);
      }};
  if (!out_.take(*reply_, context)) return close();
  pump();
}

void HttpConnection::pump() {
  while (!out_.idle()) {
    std::array<asio::const_buffer, 3> buffers;
    std::size_t i = 0;
    for (const std::string_view part : out_.rest()) buffers[i++] = asio::const_buffer(part.data(), part.size());
    error_code ec;
    const std::size_t n = socket_.write_some(buffers, ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      if (write_deadline_ == kHttpNever)
        write_deadline_ = HttpClock::now() + http_seconds(server_.limits_.write_timeout_s);
      write_waits_ = true;
      socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const error_code& wait_ec) {
        self->write_waits_ = false;
        if (self->mode_ != Mode::kReplying) return;
        self->guarded([&] {
          if (wait_ec) return self->close();
          self->pump();
          // What was written meanwhile found nobody to send it.
          if (self->mode_ == Mode::kReplying) self->flush();
        });
      });
      return;
    }
    if (ec) return close();
    out_.advance(n, *reply_);
    write_deadline_ = kHttpNever;
  }
  write_deadline_ = kHttpNever;
  out_.clear();
  if (out_.last()) finish_reply();
}

void HttpConnection::finish_reply() {
  if (out_.truncated()) {
    // Without a length or chunks only a reset says that something is missing.
    error_code ignored;
    if (out_.ends_with_connection()) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    return close();
  }
  reply_.reset();
  mode_ = Mode::kReading;
  out_.shrink(kKeptCapacity);
  server_.reply_ends();
  if (out_.close() || server_.draining_) return linger();
  process();
  wait_readable();
}

// Closing while the client still sends would reset the connection and could take the last reply with it. So only our
// side is closed, and for a moment what comes is read and dropped.
void HttpConnection::linger() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (eof_) return close();
  mode_ = Mode::kLingering;
  std::string().swap(in_);
  in_at_ = 0;
  wait_for(Wait::kLinger);
  wait_readable();
}

void HttpConnection::on_drain() {
  if (mode_ != Mode::kReading) return;
  guarded([&] {
    on_readable();  // a request may just have come
    if (mode_ != Mode::kReading) return;
    if (!reader_.begun()) return close();
    refuse(503, "the server is shutting down");
  });
}

void HttpConnection::close() {
  if (mode_ == Mode::kClosed) return;
  const auto self = shared_from_this();
  mode_ = Mode::kClosed;
  error_code ignored;
  socket_.close(ignored);
  try {
    timer_.cancel();
  } catch (...) {  // NOLINT(bugprone-empty-catch): it fires into a closed connection
  }
  end_body();
  server_.remove(self, rejected_);
  if (const auto reply = std::exchange(reply_, nullptr)) {
    reply->lose();
    server_.reply_ends();
  }
}

// --- Connection: time ------------------------------------------------------------------------------------------------

// Sets the deadline of a phase when it begins; staying in it does not extend it.
void HttpConnection::wait_for(Wait what) {
  if (what == wait_) return;
  wait_ = what;
  const HttpLimits& limits = server_.limits_;
  switch (what) {
    case Wait::kNone:
      read_deadline_ = kHttpNever;
      return;
    case Wait::kIdle:
      read_deadline_ = HttpClock::now() + http_seconds(limits.idle_timeout_s);
      return;
    case Wait::kHeader:
      read_deadline_ = HttpClock::now() + http_seconds(limits.header_timeout_s);
      return;
    case Wait::kBody:
      read_deadline_ = HttpClock::now() + http_seconds(limits.body_timeout_s);
      return;
    case Wait::kLinger:
      read_deadline_ = HttpClock::now() + http_seconds(kLingerSeconds);
      return;
  }
}

// One timer, set again only when something is due earlier than it fires: a busy connection seldom touches it.
void HttpConnection::arm() {
  if (mode_ == Mode::kClosed) return;
  const HttpClock::time_point next = std::min({read_deadline_, write_deadline_, probe_deadline_});
  if (next == kHttpNever || next >= armed_) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec || self->mode_ == Mode::kClosed) return;  // set anew, or over
    self->armed_ = kHttpNever;
    self->guarded([&] { self->on_timer(); });
  });
}

void HttpConnection::on_timer() {
  const HttpClock::time_point now = HttpClock::now();
  if (now >= write_deadline_) return close();
  if (now >= probe_deadline_) {
    probe_deadline_ = kHttpNever;
    probe();
    if (mode_ == Mode::kClosed) return;
  }
  if (now < read_deadline_) return;
  if (wait_ == Wait::kHeader || wait_ == Wait::kBody) {
    ++server_.malformed_;
    return refuse(408, wait_ == Wait::kHeader ? "the header took too long" : "the body took too long");
  }
  close();
}

// Reading is paused because the client sent far ahead, so a hang-up does not show as the end of the data.
void HttpConnection::probe() {
  pollfd look{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0 && !reply_->ended())
    return close();
  wait_readable();
}

}  // namespace cadre::server
