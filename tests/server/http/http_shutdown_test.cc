// Draining and stopping, with replies in every state.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "raw_client.h"

namespace cadre::server {
namespace {

TEST(HttpShutdown, DrainFinishesWhatRuns) {
  std::shared_ptr<HttpReply> held, streaming;
  std::mutex mutex;
  std::atomic<int> seen{0};
  auto server = start_server({}, [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    const std::lock_guard lock(mutex);
    ++seen;
    if (request.path == "/held") held = reply;
    if (request.path == "/stream") {
      streaming = reply;
      reply->start(200, {});
    }
    if (request.path == "/") reply->send(200, {}, "x");
  });
  RawClient idle(server->port()), silent(server->port()), partial(server->port()), whole(server->port()),
      stream(server->port());
  idle.send(get("/"));
  idle.read_reply();
  partial.send("GET / HTTP/1.1\r\nHo");
  whole.send(get("/held") + get("/never"));
  stream.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return seen == 3 && server->stats().connections == 5; }));
  server->drain();
  EXPECT_TRUE(idle.closes());
  EXPECT_TRUE(silent.closes());
  EXPECT_EQ(status_of_reply(partial.read_all()), 503);
  RawClient late(server->port());
  EXPECT_TRUE(!late.connected() || late.closes());
  std::thread maker([&] {
    usleep(50000);
    held->send(200, {}, "held");
    for (int i = 0; i < 10; ++i) {
      usleep(2000);
      EXPECT_TRUE(streaming->write("piece"));
    }
    streaming->end();
  });
  EXPECT_TRUE(server->stop(5));
  maker.join();
  const std::string reply = whole.read_all();
  EXPECT_NE(reply.find("\r\n\r\nheld"), std::string::npos);
  EXPECT_NE(reply.find("Connection: close\r\n"), std::string::npos);
  const std::string pieces = stream.read_all();
  EXPECT_EQ(pieces.substr(pieces.size() - 5), "0\r\n\r\n");
  EXPECT_EQ(seen, 3);  // the pipelined one was not begun
  EXPECT_TRUE(server->stop(0));
}

TEST(HttpShutdown, StopCutsOffWhatTakesTooLong) {
  std::shared_ptr<HttpReply> held;
  std::atomic<int> told{0};
  std::atomic<bool> ready{false};
  auto server = start_server({}, [&](HttpRequest, std::shared_ptr<HttpReply> reply) {
    held = reply;
    reply->on_disconnect([&] { ++told; });
    ready = true;
  });
  RawClient client(server->port());
  client.send(get("/"));
  ASSERT_TRUE(eventually([&] { return ready.load(); }));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(server->stop(0.1));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(client.closes());
  // The reply outlives the server.
  server.reset();
  EXPECT_FALSE(held->write("x"));
  held->send(200, {}, "late");
  held.reset();
}

TEST(HttpShutdown, StopWithoutStart) {
  auto server = HttpServer::listen("127.0.0.1", 0, {}, [](HttpRequest, std::shared_ptr<HttpReply>) {}, nullptr);
  ASSERT_TRUE(server.ok());
  EXPECT_TRUE((*server)->stop(1));
  auto dropped = HttpServer::listen("127.0.0.1", 0, {}, [](HttpRequest, std::shared_ptr<HttpReply>) {}, nullptr);
  EXPECT_TRUE(dropped.ok());
}

// Replies written by threads while the server stops and goes away: run with sanitizers for what it is worth.
TEST(HttpShutdown, StopUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    std::mutex mutex;
    std::vector<std::thread> writers;
    std::atomic<bool> stopping{false};
    auto server = start_server({}, [&](HttpRequest, std::shared_ptr<HttpReply> reply) {
      const std::lock_guard lock(mutex);
      writers.emplace_back([&stopping, reply] {
        reply->start(200, {});
        while (reply->write("data: x\n\n") && !stopping) usleep(50);
        reply->end();
      });
    });
    std::vector<RawClient> clients;
    for (int i = 0; i < 20; ++i) {
      clients.emplace_back(server->port());
      clients.back().send(get("/"));
    }
    ASSERT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return writers.size() == 20;
    }));
    clients.erase(clients.begin() + 10, clients.end());
    usleep(20000);
    if (round % 2 == 0) stopping = true;
    const bool complete = server->stop(round % 2 == 0 ? 5 : 0.05);
    EXPECT_TRUE(complete || round % 2 != 0);
    server.reset();
    stopping = true;
    for (auto& writer : writers) writer.join();
  }
}

}  // namespace
}  // namespace cadre::server
