#include "server/http/http_client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <future>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "server/http/http_text.h"
#include "server/http/response_reader.h"

namespace cadre::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kScratchBytes = 64 << 10;

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::clamp(s, 0.0, 1e8)));
}

struct Url {
  std::string host, port = "80", prefix;
  std::string authority;  // as the Host header has it
};

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.substr(0, 8) == "https://") {
    return error(Code::kUnsupported, "'", text, "' asks for https, and only plain http is spoken here; ",
                 "use an http:// address, or a local proxy that adds TLS");
  }
  if (text.substr(0, kScheme.size()) != kScheme) {
    return error(Code::kInvalidArgument, "'", text, "' is no address; want http://host:port");
  }
  std::string_view rest = text.substr(kScheme.size());
  Url url;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  url.prefix = rest.substr(slash);
  while (!url.prefix.empty() && url.prefix.back() == '/') url.prefix.pop_back();
  rest = rest.substr(0, slash);
  url.authority = rest;
  std::size_t colon = rest.rfind(':');
  if (!rest.empty() && rest.front() == '[') {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return error(Code::kInvalidArgument, "'", text, "': the '[' has no ']'");
    url.host = rest.substr(1, end - 1);
    colon = end + 1 < rest.size() && rest[end + 1] == ':' ? end + 1 : std::string_view::npos;
  } else {
    url.host = rest.substr(0, colon);
  }
  if (colon != std::string_view::npos) url.port = rest.substr(colon + 1);
  const bool digits = !url.port.empty() && url.port.size() <= 5 &&
                      std::all_of(url.port.begin(), url.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (url.host.empty() || !digits || std::stoi(url.port) > 65535 || !parse_target("GET", url.prefix + "/").ok() ||
      url.authority.find_first_of(" @?#\r\n\t") != std::string::npos) {
    return error(Code::kInvalidArgument, "'", text, "' is no address; want http://host:port");
  }
  return url;
}

class Connection;

struct Call {
  explicit Call(asio::io_context& io) : timer(io) {}
  std::uint64_t id = 0;
  HttpCall call;
  HttpCallbacks callbacks;
  asio::steady_timer timer;
  Clock::time_point deadline, activity_deadline;
  std::weak_ptr<Connection> connection;
  bool retried = false;
};

class Client final : public HttpClient {
 public:
  Client(Url url, const HttpClientOptions& options) : url_(std::move(url)), options_(options) {}
  ~Client() override;
  Status start();
  std::uint64_t request(HttpCall call, HttpCallbacks callbacks) override;
  void cancel(std::uint64_t call) override;
  std::int64_t connections_made() const override { return made_.load(); }

 private:
  friend class Connection;
  void run();
  void begin(const std::shared_ptr<Call>& call);
  void assign(const std::shared_ptr<Call>& call, bool fresh);
  void assign_waiting();
  void arm(const std::shared_ptr<Call>& call);
  void finish(const std::shared_ptr<Call>& call, Status status);
  std::string request_text(const Call& call) const;

  const Url url_;
  const HttpClientOptions options_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::vector<tcp::endpoint> endpoints_;
  std::thread thread_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<std::int64_t> made_{0};

  // The client's thread only.
  std::vector<char> scratch_ = std::vector<char>(kScratchBytes);
  std::unordered_map<std::uint64_t, std::shared_ptr<Call>> calls_;
  std::deque<std::shared_ptr<Call>> waiting_;
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<Connection>> idle_;
  bool closing_ = false;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(Client& client) : client_(client), socket_(client.io_) {}
  void connect(std::size_t endpoint, const std::shared_ptr<Call>& call);
  void run(const std::shared_ptr<Call>& call);  // on an open connection
  void close();
  void fail(Status status);

 private:
  // Every callback runs in here: whatever goes wrong, the call ends and the client goes on.
  template <class F>
  void guarded(F&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      fail(error(Code::kInternal, "the HTTP client: ", e.what()));
    } catch (...) {
      fail(error(Code::kInternal, "the HTTP client: unknown exception"));
    }
  }
  void wait_readable();
  void on_readable();
  void pump();
  void complete();

  Client& client_;
  tcp::socket socket_;
  bool closed_ = false, connected_ = false, read_waits_ = false, write_waits_ = false;
  bool reused_ = false;    // the call is not its first
  bool answered_ = false;  // a byte of the call's reply has come
  std::shared_ptr<Call> call_;
  std::unique_ptr<ResponseReader> reader_;
  std::string in_, out_;
  std::size_t out_at_ = 0;
};

// --- Connection ------------------------------------------------------------------------------------------------------

void Connection::connect(std::size_t endpoint, const std::shared_ptr<Call>& call) {
  call_ = call;
  call->connection = weak_from_this();
  ++client_.made_;
  error_code ignored;
  socket_.close(ignored);
  socket_.async_connect(client_.endpoints_[endpoint], [self = shared_from_this(), endpoint](const error_code& ec) {
    if (self->closed_ || !self->call_) return;
    self->guarded([&] {
      if (ec && endpoint + 1 < self->client_.endpoints_.size()) return self->connect(endpoint + 1, self->call_);
      const Url& url = self->client_.url_;
      if (ec) {
        return self->fail(error(Code::kNotFound, "cannot connect to ", url.host, ":", url.port, ": ", ec.message()));
      }
      error_code option;
      self->socket_.set_option(tcp::no_delay(true), option);
      self->socket_.non_blocking(true);
      self->connected_ = true;
      self->run(self->call_);
    });
  });
}

void Connection::run(const std::shared_ptr<Call>& call) {
  guarded([&] {
    reused_ = call_ != call;
    answered_ = false;
    call_ = call;
    call->connection = weak_from_this();
    call->activity_deadline = Clock::now() + seconds(call->call.idle_timeout_s);
    reader_ = std::make_unique<ResponseReader>(
        client_.options_.max_header_bytes, call->call.max_body_bytes, call->call.method == "HEAD",
        ResponseReader::Sink{call->callbacks.on_header, call->callbacks.on_data});
    out_ = client_.request_text(*call);
    out_at_ = 0;
    pump();
    wait_readable();
    client_.arm(call);
  });
}

void Connection::pump() {
  while (out_at_ < out_.size()) {
    error_code ec;
    const std::size_t n = socket_.write_some(asio::buffer(out_.data() + out_at_, out_.size() - out_at_), ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      if (write_waits_) return;
      write_waits_ = true;
      socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const error_code&) {
        self->write_waits_ = false;
        if (!self->closed_) self->guarded([&] { self->pump(); });
      });
      return;
    }
    if (ec) return;  // an answer may have been sent all the same; reading finds out
    out_at_ += n;
    if (call_) call_->activity_deadline = Clock::now() + seconds(call_->call.idle_timeout_s);
  }
}

void Connection::wait_readable() {
  if (closed_ || read_waits_) return;
  read_waits_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& ec) {
    self->read_waits_ = false;
    if (self->closed_) return;
    self->guarded([&] {
      if (ec) return self->fail(error(Code::kInvalidFile, "reading the reply: ", ec.message()));
      self->on_readable();
    });
  });
}

void Connection::on_readable() {
  error_code ec;
  const std::size_t n = socket_.read_some(asio::buffer(client_.scratch_), ec);
  if (ec == asio::error::would_block || ec == asio::error::try_again) return wait_readable();
  if (!call_) return close();  // idle: the server hangs up, or says something nobody asked for
  if (ec) {
    if (reused_ && !answered_ && !call_->retried) {
      // The server closed the kept connection just when the call went out: once more on a new one.
      const std::shared_ptr<Call> call = std::exchange(call_, nullptr);
      call->retried = true;
      call->connection.reset();
      close();
      return client_.assign(call, true);
    }
    reader_->finish();
    if (reader_->state() == ResponseReader::State::kDone) return complete();
    return fail(error(Code::kInvalidFile, reader_->error()));
  }
  answered_ = true;
  call_->activity_deadline = Clock::now() + seconds(call_->call.idle_timeout_s);
  std::string_view bytes(client_.scratch_.data(), n);
  if (!in_.empty()) {
    in_ += bytes;
    bytes = in_;
  }
  const std::size_t used = reader_->feed(bytes);
  std::string left(bytes.substr(used));
  in_ = std::move(left);
  if (reader_->state() == ResponseReader::State::kDone) return complete();
  if (reader_->state() == ResponseReader::State::kError) {
    return fail(error(reader_->too_large() ? Code::kLimitExceeded : Code::kInvalidFile, reader_->error()));
  }
  wait_readable();
}

void Connection::complete() {
  const std::shared_ptr<Call> call = std::exchange(call_, nullptr);
  const bool keep = reader_->keep_alive() && in_.empty() && out_at_ == out_.size() && !client_.closing_;
  reader_.reset();
  if (keep) {
    client_.idle_.push_back(shared_from_this());
    wait_readable();
  } else {
    close();
  }
  client_.finish(call, {});
  client_.assign_waiting();
}

void Connection::fail(Status status) {
  const std::shared_ptr<Call> call = std::exchange(call_, nullptr);
  close();
  if (call) client_.finish(call, std::move(status));
  client_.assign_waiting();
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  error_code ignored;
  socket_.close(ignored);
  std::erase(client_.idle_, self);
  client_.connections_.erase(self);
}

// --- Client ----------------------------------------------------------------------------------------------------------

Status Client::start() {
  try {
    error_code ec;
    tcp::resolver resolver(io_);
    for (const auto& entry : resolver.resolve(url_.host, url_.port, ec)) endpoints_.push_back(entry.endpoint());
    if (endpoints_.empty()) {
      return error(Code::kNotFound, "cannot resolve '", url_.host, "': ", ec ? ec.message() : "it has no address");
    }
    thread_ = std::thread([this] { run(); });
    return {};
  } catch (const std::exception& e) {
    return error(Code::kNotFound, "cannot resolve '", url_.host, "': ", e.what());
  }
}

void Client::run() {
  for (;;) {
    try {
      io_.run();
      return;
    } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory between two callbacks; the others go on
    }
  }
}

Client::~Client() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    closing_ = true;
    waiting_.clear();
    const auto calls = calls_;
    for (const auto& [id, call] : calls) {
      if (const auto connection = call->connection.lock()) {
        connection->fail(error(Code::kCancelled, "the client ended"));
      } else {
        finish(call, error(Code::kCancelled, "the client ended"));
      }
    }
    const auto connections = connections_;
    for (const auto& connection : connections) connection->close();
    work_.reset();
  });
  thread_.join();
}

std::uint64_t Client::request(HttpCall call, HttpCallbacks callbacks) {
  const std::uint64_t id = next_id_++;
  auto begun = std::make_shared<Call>(io_);
  begun->id = id;
  begun->call = std::move(call);
  begun->callbacks = std::move(callbacks);
  asio::post(io_, [this, begun = std::move(begun)] { begin(begun); });
  return id;
}

void Client::cancel(std::uint64_t id) {
  asio::post(io_, [this, id] {
    const auto at = calls_.find(id);
    if (at == calls_.end()) return;
    const std::shared_ptr<Call> call = at->second;
    if (const auto connection = call->connection.lock()) {
      connection->fail(error(Code::kCancelled, "cancelled"));
    } else {
      std::erase(waiting_, call);
      finish(call, error(Code::kCancelled, "cancelled"));
    }
  });
}

void Client::begin(const std::shared_ptr<Call>& call) {
  calls_.emplace(call->id, call);
  if (closing_) return finish(call, error(Code::kCancelled, "the client ended"));
  const HttpCall& c = call->call;
  const auto clean = [](std::string_view text) {
    return text.find_first_of(std::string_view("\r\n\0", 3)) == text.npos;
  };
  bool good =
      is_token(c.method) && !c.target.empty() && c.target.front() == '/' && parse_target(c.method, c.target).ok();
  for (const auto& [name, value] : c.headers) good = good && is_token(name) && clean(value);
  if (!good) return finish(call, error(Code::kInvalidArgument, "the method, target or a header cannot be sent"));
  call->deadline = Clock::now() + seconds(c.timeout_s);
  assign(call, false);
}

// To a kept connection, or to a new one, or to wait for one. `fresh`: a kept one has just failed it.
void Client::assign(const std::shared_ptr<Call>& call, bool fresh) {
  call->activity_deadline = Clock::time_point::max();
  if (!idle_.empty() && !fresh) {
    const auto connection = idle_.back();
    idle_.pop_back();
    return connection->run(call);
  }
  if (static_cast<int>(connections_.size()) < std::max(options_.max_connections, 1)) {
    const auto connection = std::make_shared<Connection>(*this);
    connections_.insert(connection);
    call->activity_deadline = Clock::now() + seconds(options_.connect_timeout_s);
    connection->connect(0, call);
  } else {
    waiting_.push_back(call);
  }
  arm(call);
}

void Client::assign_waiting() {
  while (!waiting_.empty() &&
         (!idle_.empty() || static_cast<int>(connections_.size()) < std::max(options_.max_connections, 1))) {
    const auto call = waiting_.front();
    waiting_.pop_front();
    assign(call, false);
  }
}

// One timer for all of a call. It looks when the earliest deadline was due, and again if that has moved.
void Client::arm(const std::shared_ptr<Call>& call) {
  const Clock::time_point next = std::min(call->deadline, call->activity_deadline);
  if (call->timer.expiry() == next) return;
  call->timer.expires_at(next);
  call->timer.async_wait([this, weak = std::weak_ptr(call)](const error_code& ec) {
    const auto due = weak.lock();
    if (ec || !due || calls_.count(due->id) == 0) return;
    const Clock::time_point now = Clock::now();
    if (now < due->deadline && now < due->activity_deadline) return arm(due);
    Status status = error(Code::kLimitExceeded,
                          now >= due->deadline ? "the call took too long" : "the server was silent for too long");
    if (const auto connection = due->connection.lock()) return connection->fail(std::move(status));
    std::erase(waiting_, due);
    finish(due, std::move(status));
  });
}

void Client::finish(const std::shared_ptr<Call>& call, Status status) {
  if (calls_.erase(call->id) == 0) return;
  call->connection.reset();
  call->timer.cancel();
  if (!call->callbacks.on_done) return;
  try {
    call->callbacks.on_done(std::move(status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): the call is over; there is nobody to tell
  }
}

std::string Client::request_text(const Call& call) const {
  const HttpCall& c = call.call;
  std::string text = c.method + " " + url_.prefix + c.target + " HTTP/1.1\r\nHost: " + url_.authority + "\r\n";
  bool agent = false;
  for (const auto& [name, value] : c.headers) {
    if (same_name(name, "host") || same_name(name, "content-length") || same_name(name, "transfer-encoding")) continue;
    agent = agent || same_name(name, "user-agent");
    text += name + ": " + value + "\r\n";
  }
  if (!agent) text += "User-Agent: cadre\r\n";
  if (!c.body.empty() || (c.method != "GET" && c.method != "HEAD")) {
    text += "Content-Length: " + std::to_string(c.body.size()) + "\r\n";
  }
  text += "\r\n";
  text += c.body;
  return text;
}

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::create(const std::string& url, const HttpClientOptions& options) {
  CADRE_ASSIGN(Url parsed, parse_url(url));
  auto client = std::make_unique<Client>(std::move(parsed), options);
  CADRE_TRY(client->start());
  return std::unique_ptr<HttpClient>(std::move(client));
}

Result<HttpAnswer> HttpClient::fetch(HttpCall call) {
  struct Shared {
    HttpAnswer answer;
    std::promise<Status> done;
  };
  const auto shared = std::make_shared<Shared>();
  request(std::move(call), {.on_header =
                                [shared](int status, const HttpHeaders& headers) {
                                  shared->answer.status = status;
                                  shared->answer.headers = headers;
                                },
                            .on_data = [shared](std::string_view bytes) { shared->answer.body += bytes; },
                            .on_done = [shared](Status status) { shared->done.set_value(std::move(status)); }});
  CADRE_TRY(shared->done.get_future().get());
  return std::move(shared->answer);
}

std::string_view HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return value;
  }
  return {};
}

}  // namespace cadre::server
