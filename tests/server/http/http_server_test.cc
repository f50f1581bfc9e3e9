// Requests and replies over real connections: keep-alive, versions, pipelining, bodies, errors.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "raw_client.h"
#include "support/status_matchers.h"

namespace cadre::server {
namespace {

TEST(HttpServer, ListenErrors) {
  const auto listen = [](const std::string& host, int port) {
    return HttpServer::listen(host, port, {}, [](HttpRequest, std::shared_ptr<HttpReply>) {}, nullptr);
  };
  EXPECT_THAT(listen("127.0.0.1", 70000), FailsWith(Code::kInvalidArgument, "port is 70000"));
  EXPECT_THAT(listen("no.such.host.invalid", 0), FailsWith(Code::kInvalidArgument, "no.such.host.invalid"));
  auto first = listen("127.0.0.1", 0);
  ASSERT_THAT(first, Succeeds());
  EXPECT_EQ((*first)->address(), "127.0.0.1:" + std::to_string((*first)->port()));
  EXPECT_THAT(listen("127.0.0.1", (*first)->port()), FailsWith(Code::kConflict, "cannot listen on 127.0.0.1"));
  EXPECT_THAT(listen("localhost", 0), Succeeds());
}

TEST(HttpServer, KeepAlive) {
  auto server = start_server();
  RawClient client(server->port());
  for (int i = 0; i < 50; ++i) {
    client.send(i % 2 == 0 ? get("/x?y") : post("/p", "body"));
    const std::string reply = client.read_reply();
    EXPECT_EQ(status_of_reply(reply), 200);
    EXPECT_NE(reply.find(i % 2 == 0 ? "\r\n\r\nGET /x?y " : "\r\n\r\nPOST /p? body"), std::string::npos) << reply;
    EXPECT_NE(reply.find("\r\nDate: "), std::string::npos);
    EXPECT_EQ(reply.find("Connection:"), std::string::npos);
  }
  EXPECT_EQ(server->stats().accepted, 1);
  client.send(get("/", "Connection: close\r\n"));
  EXPECT_NE(client.read_reply().find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(client.closes());
}

TEST(HttpServer, Http10) {
  auto server = start_server();
  RawClient closing(server->port());
  closing.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(status_of_reply(closing.read_all()), 200);
  EXPECT_TRUE(closing.ended());
  RawClient keeping(server->port());
  for (int i = 0; i < 2; ++i) {
    keeping.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_NE(keeping.read_reply().find("Connection: keep-alive\r\n"), std::string::npos);
  }
}

TEST(HttpServer, Head) {
  auto server = start_server();
  RawClient client(server->port());
  client.send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n" + get("/next"));
  const std::string reply = client.read_reply(true);
  EXPECT_NE(reply.find("Content-Length: 9\r\n"), std::string::npos) << reply;
  EXPECT_EQ(client.read_reply().substr(0, 15), "HTTP/1.1 200 OK");  // no byte of a body between the two
}

// The replies of later requests are made first, by other threads; they are sent in order all the same.
TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  auto server = start_server();
  RawClient client(server->port());
  std::string all;
  for (int i = 0; i < 500; ++i) all += get("/" + std::to_string(i));
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < 500; ++i) {
    const std::string reply = client.read_reply();
    EXPECT_NE(reply.find("GET /" + std::to_string(i) + "? "), std::string::npos) << reply;
  }
  sender.join();
}

TEST(HttpServer, SplitAtEveryByte) {
  auto server = start_server();
  RawClient client(server->port());
  const std::string request =
      "POST /p?q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (std::size_t cut = 1; cut < request.size(); ++cut) {
    client.send(std::string_view(request).substr(0, cut));
    if (cut % 4 == 0) usleep(300);
    client.send(std::string_view(request).substr(cut));
    EXPECT_NE(client.read_reply().find("POST /p?q abcde"), std::string::npos) << cut;
  }
  for (const char c : request) {
    client.send(std::string_view(&c, 1));
    usleep(100);
  }
  EXPECT_NE(client.read_reply().find("POST /p?q abcde"), std::string::npos);
}

TEST(HttpServer, LargeBodiesBothWays) {
  auto server = start_server();
  RawClient client(server->port());
  std::string body(8 << 20, 'x');
  for (std::size_t i = 0; i < body.size(); i += 1000) body[i] = static_cast<char>('a' + i / 1000 % 26);
  std::thread sender([&] { client.send(post("/", body)); });
  const std::string reply = client.read_reply();
  sender.join();
  EXPECT_EQ(reply.substr(reply.find("\r\n\r\n") + 4), "POST /? " + body);
}

TEST(HttpServer, ExpectContinue) {
  auto server = start_server();
  RawClient client(server->port());
  const std::string header = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
  for (int i = 0; i < 2; ++i) {
    client.send(header);
    EXPECT_EQ(client.read_reply(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body");
    EXPECT_NE(client.read_reply().find("POST /? body"), std::string::npos);
  }
  client.send(header + "body");  // it did not wait
  EXPECT_EQ(status_of_reply(client.read_reply()), 200);
}

TEST(HttpServer, MalformedIsAnsweredAndClosed) {
  auto server = start_server();
  const auto answer = [&](const std::string& bytes) {
    RawClient client(server->port());
    client.send(bytes);
    const std::string reply = client.read_all();
    EXPECT_TRUE(client.ended());
    EXPECT_NE(reply.find("Connection: close\r\n"), std::string::npos);
    EXPECT_NE(reply.find("Content-Type: text/error\r\n"), std::string::npos);
    EXPECT_NE(reply.find("\r\n\r\nE" + std::to_string(status_of_reply(reply))), std::string::npos);
    return status_of_reply(reply);
  };
  EXPECT_EQ(answer("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(answer(get("/%zz")), 400);
  EXPECT_EQ(answer("GET / HTTP/3.0\r\n\r\n"), 505);
  EXPECT_EQ(answer("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n"), 501);
  EXPECT_EQ(answer(get("/", "Expect: more\r\n")), 417);
  // The second request of a smuggling attempt is never seen.
  EXPECT_EQ(answer("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
                   get("/smuggled")),
            400);
  EXPECT_EQ(server->stats().malformed, 6);
}

TEST(HttpServer, HalfClosedClientsGetTheirAnswer) {
  auto server = start_server();
  RawClient whole(server->port());
  whole.send(get("/a") + get("/b"));
  whole.end_sending();
  const std::string replies = whole.read_all();
  EXPECT_NE(replies.find("GET /a? "), std::string::npos);
  EXPECT_NE(replies.find("GET /b? "), std::string::npos);
  RawClient half(server->port());
  half.send("GET / HTTP/1.1\r\n");
  half.end_sending();
  EXPECT_EQ(status_of_reply(half.read_all()), 400);
}

TEST(HttpServer, HandlersThatFail) {
  auto server = start_server({}, [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    if (request.path == "/throw") throw std::runtime_error("handler");
    if (request.path == "/int") throw 1;
    if (request.path == "/forget") return;
    if (request.path == "/status") return reply->send(99, {}, "x");
    if (request.path == "/none") return reply->send(204, {}, "no body is sent");
    if (request.path == "/close") return reply->send(200, {{"Connection", "close"}}, "x");
    reply->send(200, {}, request.peer);
  });
  RawClient client(server->port());
  for (const char* path : {"/throw", "/int", "/forget"}) {
    client.send(get(path));
    const std::string reply = client.read_reply();
    EXPECT_EQ(status_of_reply(reply), 500) << path;
    EXPECT_NE(reply.find("E500 "), std::string::npos) << path;
  }
  client.send(get("/status"));
  EXPECT_EQ(status_of_reply(client.read_reply()), 500);
  client.send(get("/none"));
  EXPECT_EQ(status_of_reply(client.read_reply()), 204);
  client.send(get("/peer"));
  EXPECT_NE(client.read_reply().find("\r\n\r\n127.0.0.1:"), std::string::npos);
  client.send(get("/close"));
  EXPECT_EQ(status_of_reply(client.read_all()), 200);
}

TEST(HttpServer, RepliesFromOtherThreads) {
  std::vector<std::thread> threads;
  {
    auto server = start_server({}, [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      threads.emplace_back([path = request.path, reply] {
        usleep(path == "/0" ? 20000 : 10);
        reply->send(200, {}, path);
      });
    });
    RawClient client(server->port());
    std::string all;
    for (int i = 0; i < 40; ++i) all += get("/" + std::to_string(i));
    client.send(all);
    for (int i = 0; i < 40; ++i) {
      EXPECT_NE(client.read_reply().find("\r\n\r\n/" + std::to_string(i)), std::string::npos);
    }
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace cadre::server
