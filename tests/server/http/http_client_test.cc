#include "server/http/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "raw_client.h"
#include "support/status_matchers.h"

namespace cadre::server {
namespace {

std::unique_ptr<HttpClient> client_of(int port, const HttpClientOptions& options = {}, const std::string& prefix = "") {
  auto client = HttpClient::create("http://127.0.0.1:" + std::to_string(port) + prefix, options);
  EXPECT_THAT(client, Succeeds());
  return client.ok() ? std::move(client).value() : nullptr;
}

// Answers each connection with fixed bytes once it was sent something, then closes or waits for the client to.
class CannedServer {
 public:
  explicit CannedServer(std::vector<std::string> replies, bool keep_open = false)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, replies = std::move(replies), keep_open] {
      for (const std::string& reply : replies) {
        const int fd = accept(listener_, nullptr, nullptr);
        if (fd < 0) return;
        char buffer[65536];
        EXPECT_GT(recv(fd, buffer, sizeof buffer, 0), 0);
        EXPECT_EQ(send(fd, reply.data(), reply.size(), MSG_NOSIGNAL), static_cast<ssize_t>(reply.size()));
        if (keep_open) (void)!recv(fd, buffer, sizeof buffer, 0);
        close(fd);
      }
    });
  }
  ~CannedServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }

 private:
  int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(HttpClient, Urls) {
  EXPECT_THAT(HttpClient::create("https://h"), FailsWith(Code::kUnsupported, "only plain http"));
  for (const char* url : {"", "h:80", "ftp://h", "http://", "http://:80", "http://h:", "http://h:x", "http://h:70000",
                          "http://h:123456", "http://u@h", "http://[::1", "http://h/\x01", "http://h?x"}) {
    EXPECT_THAT(HttpClient::create(url), FailsWith(Code::kInvalidArgument, "")) << url;
  }
  EXPECT_THAT(HttpClient::create("http://no.such.host.invalid"), FailsWith(Code::kNotFound, "no.such.host"));
  EXPECT_THAT(HttpClient::create("http://[::1]:80/v1/"), Succeeds());
}

TEST(HttpClient, FetchesAndReusesItsConnection) {
  auto server = start_server();
  auto client = client_of(server->port(), {}, "/prefix/");
  for (int i = 0; i < 20; ++i) {
    auto answer = client->fetch({.method = "POST", .target = "/x?y=1", .body = "b" + std::to_string(i)});
    ASSERT_THAT(answer, Succeeds());
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "POST /prefix/x?y=1 b" + std::to_string(i));
    EXPECT_EQ(answer->header("CONTENT-type"), "text/plain");
  }
  auto head = client->fetch({.method = "HEAD"});
  ASSERT_THAT(head, Succeeds());
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(client->fetch({})->body, "GET /prefix/? ");
  EXPECT_EQ(client->connections_made(), 1);
}

TEST(HttpClient, ErrorsAreTold) {
  int free_port = 0;
  {
    auto server = start_server();
    free_port = server->port();
  }
  auto nobody = client_of(free_port);
  EXPECT_THAT(nobody->fetch({}), FailsWith(Code::kNotFound, "cannot connect to 127.0.0.1"));
  EXPECT_THAT(nobody->fetch({.method = "A B"}), FailsWith(Code::kInvalidArgument, "cannot be sent"));
  EXPECT_THAT(nobody->fetch({.target = "x"}), FailsWith(Code::kInvalidArgument, "cannot be sent"));
  EXPECT_THAT(nobody->fetch({.headers = {{"A", "b\r\nC: d"}}}), FailsWith(Code::kInvalidArgument, "cannot be sent"));

  auto server = start_server();
  auto client = client_of(server->port());
  auto bad = client->fetch({.target = "/", .headers = {{"Expect", "cake"}}});
  ASSERT_THAT(bad, Succeeds());
  EXPECT_EQ(bad->status, 417);
  EXPECT_THAT(client->fetch({.method = "POST", .body = std::string(1000, 'x'), .max_body_bytes = 100}),
              FailsWith(Code::kLimitExceeded, "larger than 100 bytes"));
  EXPECT_THAT(client->fetch({}), Succeeds());
}

TEST(HttpClient, BadServers) {
  const auto fetch = [](std::string reply, bool keep_open = false) {
    CannedServer server({std::move(reply)}, keep_open);
    return client_of(server.port(), {.max_header_bytes = 4096})->fetch({.timeout_s = 3});
  };
  EXPECT_THAT(fetch(""), FailsWith(Code::kInvalidFile, "closed the connection"));
  EXPECT_THAT(fetch("nonsense\r\n\r\n", true), FailsWith(Code::kInvalidFile, "malformed"));
  EXPECT_THAT(fetch("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"), FailsWith(Code::kInvalidFile, "before"));
  EXPECT_THAT(fetch("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
              FailsWith(Code::kInvalidFile, "before"));
  EXPECT_THAT(fetch("HTTP/1.1 200 OK\r\nX: " + std::string(10000, 'x'), true),
              FailsWith(Code::kLimitExceeded, "header"));
  EXPECT_THAT(fetch("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;" + std::string(10000, 'x'), true),
              FailsWith(Code::kLimitExceeded, "header"));
  EXPECT_THAT(fetch("HTTP/1.1 101 Switching\r\n\r\n", true), FailsWith(Code::kInvalidFile, "unexpected status 101"));
  auto to_the_end = fetch("HTTP/1.1 200 OK\r\n\r\nup to the end");
  ASSERT_THAT(to_the_end, Succeeds());
  EXPECT_EQ(to_the_end->body, "up to the end");
  auto interim =
      fetch("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 204 None\r\n\r\n", true);
  ASSERT_THAT(interim, Succeeds());
  EXPECT_EQ(interim->status, 204);
  EXPECT_TRUE(interim->headers.empty());
}

TEST(HttpClient, KeptConnectionThatDiedIsTriedOnceMore) {
  // The server promises to keep the connection and closes it; whenever the client notices, the call succeeds.
  CannedServer server(std::vector<std::string>(20, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"));
  auto client = client_of(server.port());
  for (int i = 0; i < 20; ++i) EXPECT_THAT(client->fetch({.timeout_s = 5}), Succeeds()) << i;
}

TEST(HttpClient, Timeouts) {
  auto server = start_server({}, [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    static std::mutex mutex;
    static std::vector<std::shared_ptr<HttpReply>> kept;  // never answered
    const std::lock_guard lock(mutex);
    if (request.path == "/half") {
      reply->start(200, {});
      reply->write("x");
    }
    kept.push_back(std::move(reply));
  });
  auto client = client_of(server->port());
  EXPECT_THAT(client->fetch({.timeout_s = 0.1}), FailsWith(Code::kLimitExceeded, "took too long"));
  EXPECT_THAT(client->fetch({.idle_timeout_s = 0.1}), FailsWith(Code::kLimitExceeded, "silent"));
  EXPECT_THAT(client->fetch({.target = "/half", .idle_timeout_s = 0.1}), FailsWith(Code::kLimitExceeded, "silent"));
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
}

TEST(HttpClient, CancelReachesTheServer) {
  std::atomic<int> told{0}, begun{0};
  auto server = start_server({}, [&](HttpRequest, std::shared_ptr<HttpReply> reply) {
    reply->start(200, {});
    reply->write("x");
    reply->on_disconnect([&, reply] { ++told; });
    ++begun;
  });
  auto client = client_of(server->port(), {.max_connections = 2});
  std::vector<std::promise<Status>> done(3);
  std::vector<std::uint64_t> ids;
  for (auto& promise : done) {
    ids.push_back(
        client->request({}, {.on_done = [&promise](Status status) { promise.set_value(std::move(status)); }}));
  }
  ASSERT_TRUE(eventually([&] { return begun == 2; }));
  client->cancel(ids[2]);  // it still waits for a connection
  EXPECT_THAT(done[2].get_future().get(), FailsWith(Code::kCancelled, "cancelled"));
  client->cancel(ids[0]);
  client->cancel(ids[0]);
  client->cancel(12345);
  EXPECT_THAT(done[0].get_future().get(), FailsWith(Code::kCancelled, "cancelled"));
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  client.reset();  // and so does the end of the client
  EXPECT_THAT(done[1].get_future().get(), FailsWith(Code::kCancelled, "ended"));
  EXPECT_TRUE(eventually([&] { return told == 2; }));
}

TEST(HttpClient, CallsBeyondTheConnectionsWait) {
  auto server = start_server();
  auto client = client_of(server->port(), {.max_connections = 4});
  std::atomic<int> good{0}, done{0};
  for (int i = 0; i < 500; ++i) {
    client->request({.target = "/" + std::to_string(i)},
                    {.on_header = [&](int status, const HttpHeaders&) { good += status == 200 ? 1 : 0; },
                     .on_done = [&](Status status) { done += status.ok() ? 1 : 1000000; }});
  }
  EXPECT_TRUE(eventually([&] { return done == 500; }, 20));
  EXPECT_EQ(good, 500);
  EXPECT_EQ(client->connections_made(), 4);
}

TEST(HttpClient, CallbacksMayThrowAndCallBack) {
  auto server = start_server();
  auto client = client_of(server->port());
  std::promise<Status> thrown, second;
  client->request({}, {.on_data = [](std::string_view) { throw std::string("callback"); },
                       .on_done =
                           [&](Status status) {
                             thrown.set_value(std::move(status));
                             client->request({}, {.on_done = [&](Status next) { second.set_value(std::move(next)); }});
                             throw 1;
                           }});
  EXPECT_FALSE(thrown.get_future().get().ok());
  EXPECT_THAT(second.get_future().get(), Succeeds());
}

// What the load tool does: very many streams at once.
TEST(HttpClient, ThousandStreams) {
  constexpr int kStreams = 1000, kPieces = 5;
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpReply>> replies;
  auto server = start_server({}, [&](HttpRequest, std::shared_ptr<HttpReply> reply) {
    const std::lock_guard lock(mutex);
    replies.push_back(std::move(reply));
  });
  auto client = client_of(server->port(), {.max_connections = kStreams});
  std::atomic<int> done{0}, failed{0};
  std::atomic<std::int64_t> bytes{0};
  for (int i = 0; i < kStreams; ++i) {
    client->request({}, {.on_data = [&](std::string_view data) { bytes += static_cast<std::int64_t>(data.size()); },
                         .on_done =
                             [&](Status status) {
                               failed += status.ok() ? 0 : 1;
                               ++done;
                             }});
  }
  ASSERT_TRUE(eventually(
      [&] {
        const std::lock_guard lock(mutex);
        return replies.size() == kStreams;
      },
      20));
  for (const auto& reply : replies) reply->start(200, {});
  for (int i = 0; i < kPieces; ++i) {
    for (const auto& reply : replies) EXPECT_TRUE(reply->write("data: 12\n\n"));
  }
  for (const auto& reply : replies) reply->end();
  ASSERT_TRUE(eventually([&] { return done == kStreams; }, 20));
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(bytes, kStreams * kPieces * 10);
}

}  // namespace
}  // namespace cadre::server
