// The check of a request's head: what it sees and when, and that a refusal reaches a client that is still sending.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "raw_client.h"

namespace cadre::server {
namespace {

std::string post_header(std::string_view key, std::size_t length, std::string_view more = "") {
  return "POST /x?q=1 HTTP/1.1\r\nHost: h\r\nKey: " + std::string(key) +
         "\r\nContent-Length: " + std::to_string(length) + "\r\n" + std::string(more) + "\r\n";
}

class HttpHeadCheckTest : public testing::Test {
 protected:
  void start(HttpLimits limits = {}) {
    const auto handler = [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      ++handled;
      reply->send(200, {}, request.method + " " + std::to_string(request.body.size()) + " " + request.peer);
    };
    server = start_server(limits, handler, [this](const HttpRequest& head) -> std::optional<HttpHeadRefusal> {
      const std::lock_guard lock(mutex);
      seen.push_back(head);
      if (head.header("Key") == "throw") throw std::runtime_error("no");
      if (head.header("Key") == "good") return std::nullopt;
      return HttpHeadRefusal{401, {{"WWW-Authenticate", "Bearer"}, {"X", "a\r\nb"}}, "no key"};
    });
  }
  std::vector<HttpRequest> looked_at() {
    const std::lock_guard lock(mutex);
    return seen;
  }

  std::mutex mutex;
  std::vector<HttpRequest> seen;
  std::atomic<int> handled{0};
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpHeadCheckTest, SeesTheHeadOnce) {
  start();
  RawClient client(server->port());
  client.send(post_header("good", 3) + "abc" + post_header("good", 2) + "de" + get("/y", "Key: good\r\n"));
  EXPECT_NE(client.read_reply().find("POST 3 127.0.0.1:"), std::string::npos);
  EXPECT_NE(client.read_reply().find("POST 2 127.0.0.1:"), std::string::npos);
  EXPECT_NE(client.read_reply().find("GET 0 127.0.0.1:"), std::string::npos);
  const auto heads = looked_at();
  ASSERT_EQ(heads.size(), 3u);
  for (const HttpRequest& head : heads) {
    EXPECT_EQ(head.body, "");
    EXPECT_TRUE(head.peer.starts_with("127.0.0.1:")) << head.peer;
  }
  EXPECT_EQ(heads[0].method, "POST");
  EXPECT_EQ(heads[0].path, "/x");
  EXPECT_EQ(heads[0].query, "q=1");
  EXPECT_EQ(heads[2].path, "/y");
}

// What it leaves reaches the handler of that request and of no other on the connection.
TEST(HttpHeadCheck, LeavesSomethingForTheHandler) {
  const auto handler = [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    const auto left = std::static_pointer_cast<const std::string>(request.checked);
    reply->send(200, {}, left == nullptr ? "nothing" : "left " + *left);
  };
  const auto server = start_server({}, handler, [](HttpRequest& head) -> std::optional<HttpHeadRefusal> {
    const std::string key(head.header("Key"));
    if (!key.empty()) head.checked = std::make_shared<const std::string>(key);
    return std::nullopt;
  });
  RawClient client(server->port());
  client.send(post_header("one", 3) + "abc" + get("/y") + post_header("two", 0) + get("/z"));
  for (const char* want : {"left one", "nothing", "left two", "nothing"}) {
    EXPECT_NE(client.read_reply().find(want), std::string::npos) << want;
  }
}

TEST_F(HttpHeadCheckTest, ByteByByteAndInChunks) {
  start();
  RawClient client(server->port());
  const std::string bytes = post_header("good", 5) + "12345" +
                            "POST / HTTP/1.1\r\nHost: h\r\nKey: good\r\nTransfer-Encoding: chunked\r\n\r\n"
                            "3\r\nabc\r\n0\r\n\r\n";
  for (const char c : bytes) {
    client.send(std::string_view(&c, 1));
    if (c == '\n') usleep(1000);
  }
  EXPECT_NE(client.read_reply().find("POST 5 "), std::string::npos);
  EXPECT_NE(client.read_reply().find("POST 3 "), std::string::npos);
  EXPECT_EQ(looked_at().size(), 2u);
}

TEST_F(HttpHeadCheckTest, RefusesBeforeAnyOfTheBody) {
  start();
  for (const std::string& bytes : {post_header("bad", 16 << 20), post_header("bad", 3) + "abc",
                                   get("/", "Key: bad\r\n"), post_header("bad", 100, "Expect: 100-continue\r\n"),
                                   std::string("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"),
                                   post_header("bad", 1) + "a" + get("/", "Key: good\r\n")}) {
    RawClient client(server->port());
    client.send(bytes);
    const std::string reply = client.read_all();
    EXPECT_TRUE(client.ended()) << bytes;
    EXPECT_EQ(status_of_reply(reply), 401) << reply;
    EXPECT_NE(reply.find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
    EXPECT_NE(reply.find("Connection: close\r\n"), std::string::npos);
    EXPECT_EQ(reply.find("\nb"), std::string::npos);
    EXPECT_TRUE(reply.ends_with("\r\n\r\nno key")) << reply;
  }
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(server->stats().refused, 6);
  EXPECT_EQ(server->stats().malformed, 0);
  RawClient head(server->port());
  head.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(head.read_all().ends_with("\r\n\r\n"));
}

TEST_F(HttpHeadCheckTest, ContinueComesAfterIt) {
  start();
  RawClient client(server->port());
  client.send(post_header("good", 3, "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.read_reply(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(looked_at().size(), 1u);
  client.send("abc");
  EXPECT_EQ(status_of_reply(client.read_reply()), 200);
}

// The client writes all of a large body before it reads: it must find the answer, not a reset.
TEST_F(HttpHeadCheckTest, AnswersWhileTheClientSends) {
  start();
  for (int i = 0; i < 5; ++i) {
    RawClient client(server->port());
    EXPECT_TRUE(client.send(post_header("bad", 15 << 20) + std::string(15 << 20, 'x')));
    EXPECT_EQ(status_of_reply(client.read_all()), 401) << i;
    EXPECT_TRUE(client.ended());
  }
}

// But what it sends is not read for ever.
TEST_F(HttpHeadCheckTest, LingersWithinBounds) {
  start();
  RawClient client(server->port());
  client.send(post_header("bad", 16 << 20));
  const std::string block(1 << 20, 'x');
  int blocks = 0;
  while (blocks < 400 && client.send(block)) ++blocks;
  EXPECT_LT(blocks, 100);  // 64 MiB, and what fits in the sockets
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
  // Nor waited for.
  RawClient silent(server->port());
  silent.send(post_header("bad", 16 << 20));
  EXPECT_EQ(status_of_reply(silent.read_reply()), 401);
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
}

TEST_F(HttpHeadCheckTest, AnExceptionRefuses) {
  start();
  RawClient client(server->port());
  client.send(post_header("throw", 3) + "abc");
  const std::string reply = client.read_all();
  EXPECT_EQ(status_of_reply(reply), 500);
  EXPECT_TRUE(reply.ends_with("E500 the server failed to answer")) << reply;
  EXPECT_EQ(handled, 0);
}

TEST_F(HttpHeadCheckTest, MalformedRequestsAreNotShownToIt) {
  HttpLimits limits;
  limits.max_body_bytes = 100;
  start(limits);
  for (const auto& [bytes, status] :
       {std::pair(post_header("good", 101), 413), std::pair(std::string("GET / HTTP/1.1\r\n\r\n"), 400)}) {
    RawClient client(server->port());
    client.send(bytes);
    EXPECT_EQ(status_of_reply(client.read_all()), status);
  }
  EXPECT_EQ(looked_at().size(), 0u);
}

// Many who may not ask, each with a body that never ends, leave no less room for one who may.
TEST_F(HttpHeadCheckTest, TheRefusedHoldNothing) {
  HttpLimits limits;
  limits.max_body_bytes = 100'000;
  limits.max_pending_body_bytes = 200'000;
  limits.max_pending_body_bytes_per_peer = 200'000;
  start(limits);
  RawClient good(server->port());
  good.send(post_header("good", 100'000) + std::string(99'999, 'x'));
  std::vector<RawClient> bad;
  for (int i = 0; i < 40; ++i) {
    bad.emplace_back(server->port());
    bad.back().send(post_header("bad", 100'000) + std::string(90'000, 'x'));
  }
  for (RawClient& client : bad) EXPECT_EQ(status_of_reply(client.read_reply()), 401);
  good.send("x");
  EXPECT_EQ(status_of_reply(good.read_reply()), 200);
  EXPECT_EQ(server->stats().given_up, 0);
  EXPECT_EQ(server->stats().refused, 40);
}

TEST_F(HttpHeadCheckTest, StopsWhileClientsLinger) {
  start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back(server->port());
    clients.back().send(post_header(i % 2 == 0 ? "bad" : "good", 1000) + "abc");
  }
  ASSERT_TRUE(eventually([&] { return looked_at().size() == 10u; }));
  EXPECT_TRUE(server->stop(5));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(status_of_reply(clients[static_cast<std::size_t>(i)].read_all()), i % 2 == 0 ? 401 : 503);
  }
}

}  // namespace
}  // namespace cadre::server
