#include "server/http/http_server.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/result.h"
#include "server/http/http_text.h"
#include "server/http/reply_state.h"
#include "server/http/reply_writer.h"
#include "server/http/request_reader.h"

namespace cadre::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr Clock::time_point kNever = Clock::time_point::max();
constexpr std::size_t kScratchBytes = 64 << 10;  // one buffer of the server that every read goes through
constexpr std::size_t kHeldBytes = 16 << 10;     // what a client may send ahead while its reply is made
constexpr std::size_t kKeptCapacity = 4 << 10;   // of buffers of a connection that waits for its next request
constexpr int kMaxRejecting = 64;                // connections over the limit that get a 503; more are just closed
constexpr double kLingerSeconds = 2;             // for the client to read the last reply before its data is refused
constexpr double kProbeSeconds = 1;              // between looks for a hang-up while reading is paused
constexpr double kAcceptRetrySeconds = 0.1;      // after accept failed, for lack of file descriptors for example

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::clamp(s, 0.0, 1e8)));
}

class Connection;

class Server final : public HttpServer {
 public:
  Server(const HttpLimits& limits, HttpHandler handler, HttpErrorBody error_body)
      : limits_(limits), handler_(std::move(handler)), error_body_(std::move(error_body)) {}
  ~Server() override { stop(0); }

  Status bind(const std::string& host, int port);
  int port() const override { return port_; }
  std::string address() const override { return address_; }
  void start() override;
  void drain() override;
  bool stop(double wait_s) override;
  HttpServerStats stats() const override {
    return {connections_.load(), accepted_.load(), rejected_.load(), malformed_.load()};
  }

 private:
  friend class Connection;
  void run();
  void accept();
  void accepted(tcp::socket socket);
  void drain_now();
  void close_all();
  void reply_begins() { ++replying_; }
  void reply_ends();
  void tell_if_quiet();
  void remove(const std::shared_ptr<Connection>& connection, bool rejected);
  std::string_view date();
  std::pair<std::string, std::string> error_body(int status, std::string_view message);

  const HttpLimits limits_;
  const HttpHandler handler_;
  const HttpErrorBody error_body_;
  int port_ = 0;
  std::string address_;

  // Shared with the replies that other threads hold: they may post to it after the server is gone.
  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_->get_executor()};
  tcp::acceptor acceptor_{*io_};
  asio::steady_timer accept_retry_{*io_};
  std::thread thread_;

  // The server's thread only.
  std::vector<char> scratch_ = std::vector<char>(kScratchBytes);
  std::unordered_set<std::shared_ptr<Connection>> open_;
  int rejecting_ = 0;
  int replying_ = 0;
  bool draining_ = false;
  std::size_t body_bytes_ = 0;  // of bodies that are not complete
  std::time_t date_second_ = -1;
  std::string date_;

  std::atomic<std::int64_t> connections_{0}, accepted_{0}, rejected_{0}, malformed_{0};

  std::mutex stop_mutex_;  // one stop at a time
  bool stopped_ = false;
  bool all_complete_ = true;
  std::mutex quiet_mutex_;
  std::condition_variable quiet_changed_;
  bool quiet_ = false;  // draining, and no reply is left
};

// One client. Everything runs on the server's thread. A request is read, its reply sent, then the next one read; while
// a reply is made reading goes on, to notice that the client left, but only kHeldBytes ahead.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server& server, tcp::socket socket)
      : server_(server), socket_(std::move(socket)), timer_(*server.io_), reader_(server.limits_) {}

  void open(bool reject);
  void on_drain();
  void close();
  bool replying() const { return mode_ == Mode::kReplying; }

 private:
  enum class Mode : std::uint8_t { kReading, kReplying, kLingering, kClosed };
  enum class Wait : std::uint8_t { kNone, kIdle, kHeader, kBody, kLinger };

  // Every callback runs in here: whatever goes wrong, the connection ends and the server goes on.
  template <class F>
  void guarded(F&& f) {
    try {
      f();
      arm();
    } catch (...) {
      close();
    }
  }

  void wait_readable();
  void on_readable();
  void on_eof();
  void process();
  void account_body();
  void dispatch();
  void begin_reply();
  void refuse(int status, std::string_view message);
  void flush();
  void pump();
  void finish_reply();
  void linger();
  void wait_for(Wait what);
  void arm();
  void on_timer();
  void probe();
  std::size_t held() const { return in_.size() - in_at_; }

  Server& server_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  RequestReader reader_;
  Mode mode_ = Mode::kReading;
  std::string peer_;
  bool rejected_ = false;

  std::string in_;  // read and not used up from in_at_ on
  std::size_t in_at_ = 0;
  bool read_waits_ = false;
  bool eof_ = false;
  bool continued_ = false;      // "100 Continue" was sent for this request
  std::size_t body_bytes_ = 0;  // as counted in server_.body_bytes_

  std::shared_ptr<ReplyState> reply_;
  ReplyWriter out_;
  bool write_waits_ = false;

  Wait wait_ = Wait::kNone;
  Clock::time_point read_deadline_ = kNever, write_deadline_ = kNever, probe_deadline_ = kNever;
  Clock::time_point armed_ = kNever;
};

// --- Connection: reading ---------------------------------------------------------------------------------------------

void Connection::open(bool reject) {
  guarded([&] {
    rejected_ = reject;
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    socket_.non_blocking(true);
    const tcp::endpoint peer = socket_.remote_endpoint(ignored);
    const std::string host = peer.address().to_string();
    peer_ = (peer.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(peer.port());
    if (reject) return refuse(503, "too many connections, try again later");
    wait_for(Wait::kIdle);
    wait_readable();
  });
}

// Waits without a buffer, so that an idle connection costs none.
void Connection::wait_readable() {
  if (read_waits_ || eof_ || mode_ == Mode::kClosed) return;
  if (mode_ == Mode::kReplying && held() >= kHeldBytes) {
    if (probe_deadline_ == kNever) probe_deadline_ = Clock::now() + seconds(kProbeSeconds);
    return;
  }
  probe_deadline_ = kNever;
  read_waits_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& ec) {
    self->read_waits_ = false;
    if (self->mode_ == Mode::kClosed) return;
    self->guarded([&] { ec ? self->close() : self->on_readable(); });
  });
}

void Connection::on_readable() {
  const std::size_t room = mode_ == Mode::kReplying ? kHeldBytes - std::min(held(), kHeldBytes) : kScratchBytes;
  if (room == 0) return wait_readable();
  error_code ec;
  const std::size_t n = socket_.read_some(asio::buffer(server_.scratch_.data(), std::min(room, kScratchBytes)), ec);
  if (ec == asio::error::would_block || ec == asio::error::try_again) return wait_readable();
  if (ec == asio::error::eof) return on_eof();
  if (ec) return close();
  if (mode_ != Mode::kLingering) in_.append(server_.scratch_.data(), n);
  if (mode_ == Mode::kReading) process();
  wait_readable();
}

// A client that closes cannot be told from one that will not send more. While a reply is made it counts as gone, so
// that work for nobody stops; what is already answered, and what can be answered at once, is still sent.
void Connection::on_eof() {
  eof_ = true;
  if (mode_ == Mode::kLingering) return close();
  if (mode_ == Mode::kReplying && !reply_->ended()) return close();
  if (mode_ == Mode::kReading) process();
}

void Connection::process() {
  if (held() > 0) {
    in_at_ += reader_.feed(std::string_view(in_).substr(in_at_));
    if (held() == 0) {
      in_.clear();
      in_at_ = 0;
      if (in_.capacity() > kKeptCapacity && reader_.state() != RequestReader::State::kBody) std::string().swap(in_);
    } else if (in_at_ > in_.size() / 2) {
      in_.erase(0, in_at_);
      in_at_ = 0;
    }
    account_body();
    if (reader_.state() == RequestReader::State::kError) {
      ++server_.malformed_;
      return refuse(reader_.error_status(), reader_.error_message());
    }
    if (server_.body_bytes_ > server_.limits_.max_pending_body_bytes) {
      return refuse(503, "too many large requests at once, try again later");
    }
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

void Connection::account_body() {
  const std::size_t now = reader_.state() == RequestReader::State::kBody ? reader_.body_bytes() : 0;
  server_.body_bytes_ += now - body_bytes_;
  body_bytes_ = now;
}

void Connection::dispatch() {
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

void Connection::begin_reply() {
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
void Connection::refuse(int status, std::string_view message) {
  out_.begin(reader_.head(), reader_.http10(), true);
  in_.clear();
  in_at_ = 0;
  server_.body_bytes_ -= std::exchange(body_bytes_, 0);
  begin_reply();
  auto [body, type] = server_.error_body(status, message);
  HttpHeaders headers = {{"Content-Type", std::move(type)}};
  if (status == 503) headers.emplace_back("Retry-After", "1");
  reply_->send(status, headers, std::move(body));
}

void Connection::flush() {
  if (write_waits_ && reply_->cut()) return close();
  if (write_waits_ || out_.last()) return;
  const ReplyWriter::Context context{
      .closing = server_.draining_, .date = server_.date(), .error_body = [this](int status, std::string_view message) {
        return server_.error_body(status, message);
      }};
  if (!out_.take(*reply_, context)) return close();
  pump();
}

void Connection::pump() {
  while (!out_.idle()) {
    std::array<asio::const_buffer, 3> buffers;
    std::size_t i = 0;
    for (const std::string_view part : out_.rest()) buffers[i++] = asio::const_buffer(part.data(), part.size());
    error_code ec;
    const std::size_t n = socket_.write_some(buffers, ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      if (write_deadline_ == kNever) write_deadline_ = Clock::now() + seconds(server_.limits_.write_timeout_s);
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
    write_deadline_ = kNever;
  }
  write_deadline_ = kNever;
  out_.clear();
  if (out_.last()) finish_reply();
}

void Connection::finish_reply() {
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
void Connection::linger() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (eof_) return close();
  mode_ = Mode::kLingering;
  std::string().swap(in_);
  in_at_ = 0;
  wait_for(Wait::kLinger);
  wait_readable();
}

void Connection::on_drain() {
  if (mode_ != Mode::kReading) return;
  guarded([&] {
    on_readable();  // a request may just have come
    if (mode_ != Mode::kReading) return;
    if (!reader_.begun()) return close();
    refuse(503, "the server is shutting down");
  });
}

void Connection::close() {
  if (mode_ == Mode::kClosed) return;
  const auto self = shared_from_this();
  mode_ = Mode::kClosed;
  error_code ignored;
  socket_.close(ignored);
  try {
    timer_.cancel();
  } catch (...) {  // NOLINT(bugprone-empty-catch): it fires into a closed connection
  }
  server_.body_bytes_ -= std::exchange(body_bytes_, 0);
  server_.remove(self, rejected_);
  if (const auto reply = std::exchange(reply_, nullptr)) {
    reply->lose();
    server_.reply_ends();
  }
}

// --- Connection: time ------------------------------------------------------------------------------------------------

// Sets the deadline of a phase when it begins; staying in it does not extend it.
void Connection::wait_for(Wait what) {
  if (what == wait_) return;
  wait_ = what;
  const HttpLimits& limits = server_.limits_;
  switch (what) {
    case Wait::kNone:
      read_deadline_ = kNever;
      return;
    case Wait::kIdle:
      read_deadline_ = Clock::now() + seconds(limits.idle_timeout_s);
      return;
    case Wait::kHeader:
      read_deadline_ = Clock::now() + seconds(limits.header_timeout_s);
      return;
    case Wait::kBody:
      read_deadline_ = Clock::now() + seconds(limits.body_timeout_s);
      return;
    case Wait::kLinger:
      read_deadline_ = Clock::now() + seconds(kLingerSeconds);
      return;
  }
}

// One timer, set again only when something is due earlier than it fires: a busy connection seldom touches it.
void Connection::arm() {
  if (mode_ == Mode::kClosed) return;
  const Clock::time_point next = std::min({read_deadline_, write_deadline_, probe_deadline_});
  if (next == kNever || next >= armed_) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec || self->mode_ == Mode::kClosed) return;  // set anew, or over
    self->armed_ = kNever;
    self->guarded([&] { self->on_timer(); });
  });
}

void Connection::on_timer() {
  const Clock::time_point now = Clock::now();
  if (now >= write_deadline_) return close();
  if (now >= probe_deadline_) {
    probe_deadline_ = kNever;
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
void Connection::probe() {
  pollfd look{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0 && !reply_->ended())
    return close();
  wait_readable();
}

// --- Server ----------------------------------------------------------------------------------------------------------

Status Server::bind(const std::string& host, int port) {
  if (port < 0 || port > 65535) return error(Code::kInvalidArgument, "port is ", port, ", want 0 to 65535");
  try {
    error_code ec;
    tcp::resolver resolver(*io_);
    const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
    if (ec || found.empty()) {
      return error(Code::kInvalidArgument, "cannot listen on '", host, "': ", ec ? ec.message() : "it has no address");
    }
    for (const auto& entry : found) {
      const tcp::endpoint endpoint = entry.endpoint();
      error_code ignored;
      acceptor_.close(ignored);
      if (acceptor_.open(endpoint.protocol(), ec)) continue;
      acceptor_.set_option(tcp::acceptor::reuse_address(true), ignored);
      if (acceptor_.bind(endpoint, ec) || acceptor_.listen(asio::socket_base::max_listen_connections, ec)) continue;
      const tcp::endpoint bound = acceptor_.local_endpoint();
      const std::string text = bound.address().to_string();
      port_ = bound.port();
      address_ = (bound.address().is_v6() ? "[" + text + "]" : text) + ":" + std::to_string(port_);
      return {};
    }
    return error(ec == asio::error::address_in_use ? Code::kConflict : Code::kInvalidArgument, "cannot listen on ",
                 host, ":", port, ": ", ec.message());
  } catch (const std::exception& e) {
    return error(Code::kInvalidArgument, "cannot listen on ", host, ":", port, ": ", e.what());
  }
}

void Server::start() {
  const std::lock_guard lock(stop_mutex_);
  if (stopped_ || thread_.joinable()) return;
  asio::post(*io_, [this] { accept(); });
  thread_ = std::thread([this] { run(); });
}

void Server::run() {
  for (;;) {
    try {
      io_->run();
      return;
    } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory between two callbacks; the others go on
    }
  }
}

void Server::accept() {
  if (draining_) return;
  acceptor_.async_accept([this](const error_code& ec, tcp::socket socket) {
    if (draining_) return;
    if (!ec) {
      try {
        accepted(std::move(socket));
      } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for one more; it is closed
      }
      return accept();
    }
    if (ec == asio::error::connection_aborted || ec == asio::error::interrupted) return accept();
    // Out of file descriptors, most likely: trying again at once would spin.
    accept_retry_.expires_after(seconds(kAcceptRetrySeconds));
    accept_retry_.async_wait([this](const error_code&) { accept(); });
  });
}

void Server::accepted(tcp::socket socket) {
  ++accepted_;
  const bool reject = static_cast<int>(open_.size()) - rejecting_ >= limits_.max_connections;
  if (reject) {
    ++rejected_;
    if (rejecting_ >= kMaxRejecting) return;
  }
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  open_.insert(connection);
  connections_ = static_cast<std::int64_t>(open_.size());
  if (reject) ++rejecting_;
  connection->open(reject);
}

void Server::remove(const std::shared_ptr<Connection>& connection, bool rejected) {
  if (open_.erase(connection) > 0 && rejected) --rejecting_;
  connections_ = static_cast<std::int64_t>(open_.size());
}

void Server::reply_ends() {
  --replying_;
  tell_if_quiet();
}

void Server::tell_if_quiet() {
  if (!draining_ || replying_ > 0) return;
  const std::lock_guard lock(quiet_mutex_);
  quiet_ = true;
  quiet_changed_.notify_all();
}

void Server::drain() {
  asio::post(*io_, [this] { drain_now(); });
}

void Server::drain_now() {
  if (draining_) return;
  draining_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  accept_retry_.cancel();
  const std::vector<std::shared_ptr<Connection>> all(open_.begin(), open_.end());
  for (const auto& connection : all) connection->on_drain();
  tell_if_quiet();
}

void Server::close_all() {
  all_complete_ = replying_ == 0;
  const std::vector<std::shared_ptr<Connection>> all(open_.begin(), open_.end());
  for (const auto& connection : all) connection->close();
  work_.reset();
}

bool Server::stop(double wait_s) {
  const std::lock_guard one_at_a_time(stop_mutex_);
  if (stopped_) return all_complete_;
  stopped_ = true;
  if (!thread_.joinable()) {
    error_code ignored;
    acceptor_.close(ignored);
    return true;
  }
  drain();
  {
    std::unique_lock lock(quiet_mutex_);
    quiet_changed_.wait_for(lock, seconds(wait_s), [&] { return quiet_; });
  }
  asio::post(*io_, [this] { close_all(); });
  thread_.join();
  return all_complete_;
}

std::string_view Server::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    date_ = http_date(now);
  }
  return date_;
}

std::pair<std::string, std::string> Server::error_body(int status, std::string_view message) {
  try {
    if (error_body_) return error_body_(status, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the plain text below does as well
  }
  return {std::string(message) + "\n", "text/plain; charset=utf-8"};
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, int port, const HttpLimits& limits,
                                                       HttpHandler handler, HttpErrorBody error_body) {
  auto server = std::make_unique<Server>(limits, std::move(handler), std::move(error_body));
  CADRE_TRY(server->bind(host, port));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace cadre::server
