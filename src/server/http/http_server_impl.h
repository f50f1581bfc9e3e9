// The two classes behind HttpServer, for the files that implement it only: they bring Asio along. A server owns its
// connections, and everything but the calls from outside runs on its one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "server/http/http_server.h"
#include "server/http/pending_bodies.h"
#include "server/http/reply_state.h"
#include "server/http/reply_writer.h"
#include "server/http/request_reader.h"

namespace cadre::server {

using HttpClock = std::chrono::steady_clock;
constexpr HttpClock::time_point kHttpNever = HttpClock::time_point::max();
constexpr std::size_t kHttpScratchBytes = 64 << 10;  // one buffer of the server that every read goes through
constexpr std::size_t kHttpLingerBytes = 64 << 20;   // read and dropped after a connection's last reply

inline HttpClock::duration http_seconds(double s) {
  return std::chrono::duration_cast<HttpClock::duration>(std::chrono::duration<double>(std::clamp(s, 0.0, 1e8)));
}

class HttpConnection;

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpLimits& limits, HttpHandler handler, HttpErrorBody error_body, HttpHeadCheck head_check)
      : limits_(limits),
        handler_(std::move(handler)),
        error_body_(std::move(error_body)),
        head_check_(std::move(head_check)) {}
  ~HttpServerImpl() override { stop(0); }

  Status bind(const std::string& host, int port);
  int port() const override { return port_; }
  std::string address() const override { return address_; }
  void start() override;
  void drain() override;
  bool stop(double wait_s) override;
  HttpServerStats stats() const override {
    return {connections_.load(), accepted_.load(), rejected_.load(),
            malformed_.load(),   refused_.load(),  given_up_.load()};
  }

 private:
  friend class HttpConnection;
  void run();
  void accept();
  void accepted(boost::asio::ip::tcp::socket socket);
  void drain_now();
  void close_all();
  void reply_begins() { ++replying_; }
  void reply_ends();
  void tell_if_quiet();
  void remove(const std::shared_ptr<HttpConnection>& connection, bool rejected);
  std::string_view date();
  std::pair<std::string, std::string> error_body(int status, std::string_view message);

  const HttpLimits limits_;
  const HttpHandler handler_;
  const HttpErrorBody error_body_;
  const HttpHeadCheck head_check_;
  int port_ = 0;
  std::string address_;

  // Shared with the replies that other threads hold: they may post to it after the server is gone.
  const std::shared_ptr<boost::asio::io_context> io_ = std::make_shared<boost::asio::io_context>(1);
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_->get_executor()};
  boost::asio::ip::tcp::acceptor acceptor_{*io_};
  boost::asio::steady_timer accept_retry_{*io_};
  std::thread thread_;

  // The server's thread only.
  std::vector<char> scratch_ = std::vector<char>(kHttpScratchBytes);
  std::unordered_set<std::shared_ptr<HttpConnection>> open_;
  int rejecting_ = 0;
  int replying_ = 0;
  bool draining_ = false;
  PendingBodies bodies_{limits_};
  std::time_t date_second_ = -1;
  std::string date_;

  std::atomic<std::int64_t> connections_{0}, accepted_{0}, rejected_{0}, malformed_{0}, refused_{0}, given_up_{0};

  std::mutex stop_mutex_;  // one stop at a time
  bool stopped_ = false;
  bool all_complete_ = true;
  std::mutex quiet_mutex_;
  std::condition_variable quiet_changed_;
  bool quiet_ = false;  // draining, and no reply is left
};

// One client. Everything runs on the server's thread. A request is read, its reply sent, then the next one read; while
// a reply is made reading goes on, to notice that the client left, but only kHeldBytes ahead.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpServerImpl& server, boost::asio::ip::tcp::socket socket)
      : server_(server),
        socket_(std::move(socket)),
        timer_(*server.io_),
        reader_(server.limits_, server.head_check_ != nullptr) {}

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
  bool admitted();
  bool account_body();
  void end_body();
  void give_up();
  void dispatch();
  void begin_reply();
  void refuse(int status, std::string_view message);
  void refuse(int status, const HttpHeaders& headers, std::string body);
  void flush();
  void pump();
  void finish_reply();
  void linger();
  void wait_for(Wait what);
  void arm();
  void on_timer();
  void probe();
  std::size_t held() const { return in_.size() - in_at_; }

  HttpServerImpl& server_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  RequestReader reader_;
  Mode mode_ = Mode::kReading;
  std::string peer_, peer_key_;
  bool rejected_ = false;

  std::string in_;  // read and not used up from in_at_ on
  std::size_t in_at_ = 0;
  bool read_waits_ = false;
  bool eof_ = false;
  bool continued_ = false;                     // "100 Continue" was sent for this request
  std::optional<PendingBodies::Handle> body_;  // while one arrives
  std::size_t linger_left_ = kHttpLingerBytes;

  std::shared_ptr<ReplyState> reply_;
  ReplyWriter out_;
  bool write_waits_ = false;

  Wait wait_ = Wait::kNone;
  HttpClock::time_point read_deadline_ = kHttpNever, write_deadline_ = kHttpNever, probe_deadline_ = kHttpNever;
  HttpClock::time_point armed_ = kHttpNever;
};

}  // namespace cadre::server
