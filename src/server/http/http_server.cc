#include "server/http/http_server.h"

#include <boost/asio/post.hpp>

#include "base/result.h"
#include "server/http/http_server_impl.h"
#include "server/http/http_text.h"

namespace cadre::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kMaxRejecting = 64;            // connections over the limit that get a 503; more are just closed
constexpr double kAcceptRetrySeconds = 0.1;  // after accept failed, for lack of file descriptors for example

}  // namespace

Status HttpServerImpl::bind(const std::string& host, int port) {
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

void HttpServerImpl::start() {
  const std::lock_guard lock(stop_mutex_);
  if (stopped_ || thread_.joinable()) return;
  asio::post(*io_, [this] { accept(); });
  thread_ = std::thread([this] { run(); });
}

void HttpServerImpl::run() {
  for (;;) {
    try {
      io_->run();
      return;
    } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory between two callbacks; the others go on
    }
  }
}

void HttpServerImpl::accept() {
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
    accept_retry_.expires_after(http_seconds(kAcceptRetrySeconds));
    accept_retry_.async_wait([this](const error_code&) { accept(); });
  });
}

void HttpServerImpl::accepted(tcp::socket socket) {
  ++accepted_;
  const bool reject = static_cast<int>(open_.size()) - rejecting_ >= limits_.max_connections;
  if (reject) {
    ++rejected_;
    if (rejecting_ >= kMaxRejecting) return;
  }
  const auto connection = std::make_shared<HttpConnection>(*this, std::move(socket));
  open_.insert(connection);
  connections_ = static_cast<std::int64_t>(open_.size());
  if (reject) ++rejecting_;
  connection->open(reject);
}

void HttpServerImpl::remove(const std::shared_ptr<HttpConnection>& connection, bool rejected) {
  if (open_.erase(connection) > 0 && rejected) --rejecting_;
  connections_ = static_cast<std::int64_t>(open_.size());
}

void HttpServerImpl::reply_ends() {
  --replying_;
  tell_if_quiet();
}

void HttpServerImpl::tell_if_quiet() {
  if (!draining_ || replying_ > 0) return;
  const std::lock_guard lock(quiet_mutex_);
  quiet_ = true;
  quiet_changed_.notify_all();
}

void HttpServerImpl::drain() {
  asio::post(*io_, [this] { drain_now(); });
}

void HttpServerImpl::drain_now() {
  if (draining_) return;
  draining_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  accept_retry_.cancel();
  const std::vector<std::shared_ptr<HttpConnection>> all(open_.begin(), open_.end());
  for (const auto& connection : all) connection->on_drain();
  tell_if_quiet();
}

void HttpServerImpl::close_all() {
  all_complete_ = replying_ == 0;
  const std::vector<std::shared_ptr<HttpConnection>> all(open_.begin(), open_.end());
  for (const auto& connection : all) connection->close();
  work_.reset();
}

bool HttpServerImpl::stop(double wait_s) {
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
    quiet_changed_.wait_for(lock, http_seconds(wait_s), [&] { return quiet_; });
  }
  asio::post(*io_, [this] { close_all(); });
  thread_.join();
  return all_complete_;
}

std::string_view HttpServerImpl::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    date_ = http_date(now);
  }
  return date_;
}

std::pair<std::string, std::string> HttpServerImpl::error_body(int status, std::string_view message) {
  try {
    if (error_body_) return error_body_(status, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the plain text below does as well
  }
  return {std::string(message) + "\n", "text/plain; charset=utf-8"};
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, int port, const HttpLimits& limits,
                                                       HttpHandler handler, HttpErrorBody error_body,
                                                       HttpHeadCheck head_check) {
  auto server =
      std::make_unique<HttpServerImpl>(limits, std::move(handler), std::move(error_body), std::move(head_check));
  CADRE_TRY(server->bind(host, port));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace cadre::server
