// Replies in pieces: chunks, many at once, slow readers, clients that leave.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "raw_client.h"
#include "server/http/http_client.h"

namespace cadre::server {
namespace {

// Keeps the replies a handler got, for the test to answer.
class Kept {
 public:
  HttpHandler handler() {
    return [this](HttpRequest, std::shared_ptr<HttpReply> reply) {
      const std::lock_guard lock(mutex_);
      replies_.push_back(std::move(reply));
    };
  }
  std::shared_ptr<HttpReply> take() {
    std::shared_ptr<HttpReply> reply;
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      if (replies_.empty()) return false;
      reply = std::move(replies_.front());
      replies_.erase(replies_.begin());
      return true;
    }));
    return reply;
  }
  bool empty() {
    const std::lock_guard lock(mutex_);
    return replies_.empty();
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpReply>> replies_;
};

TEST(HttpStream, ChunksArriveAsTheyAreWritten) {
  Kept kept;
  auto server = start_server({}, kept.handler());
  RawClient client(server->port());
  client.send(get("/"));
  const auto reply = kept.take();
  reply->start(200, {{"Content-Type", "text/event-stream"}});
  const std::string header = client.read_until("\r\n\r\n");
  EXPECT_NE(header.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(header.find("Content-Length"), std::string::npos);
  for (const std::string text : {"one", "two", "a longer piece of text"}) {
    EXPECT_TRUE(reply->write(text));
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    EXPECT_EQ(client.read_until(text + "\r\n"), size + text + "\r\n");
  }
  EXPECT_TRUE(reply->write(""));  // not the end
  reply->end();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_FALSE(reply->write("late"));
  client.send(get("/"));  // the connection goes on
  kept.take()->send(200, {}, "next");
  EXPECT_NE(client.read_reply().find("next"), std::string::npos);
}

TEST(HttpStream, HeadAndHttp10) {
  auto server = start_server({}, [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    reply->start(200, {});
    reply->write("ab");
    reply->write("cd");
    if (request.path != "/half") reply->end();
  });
  RawClient head(server->port());
  head.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + get("/"));
  EXPECT_NE(head.read_until("\r\n\r\n").find("chunked"), std::string::npos);
  EXPECT_EQ(head.read_until("\r\n\r\n").substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_EQ(head.read_until("0\r\n\r\n"), "4\r\nabcd\r\n0\r\n\r\n");
  RawClient old(server->port());
  old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string reply = old.read_all();
  EXPECT_EQ(reply.find("chunked"), std::string::npos);
  EXPECT_NE(reply.find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(reply.substr(reply.size() - 8), "\r\n\r\nabcd");
  // A maker that leaves in the middle: the end is missing, and the connection is over.
  RawClient half(server->port());
  half.send(get("/half"));
  const std::string cut = half.read_all();
  EXPECT_NE(cut.find("4\r\nabcd\r\n"), std::string::npos);
  EXPECT_EQ(cut.find("0\r\n\r\n"), std::string::npos);
  EXPECT_TRUE(half.ended());
}

TEST(HttpStream, FortyAtOnce) {
  constexpr int kStreams = 40, kPieces = 200;
  std::mutex mutex;
  std::vector<std::thread> writers;
  auto server = start_server({}, [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    const std::lock_guard lock(mutex);
    writers.emplace_back([path = request.path, reply] {
      reply->start(200, {});
      for (int i = 0; i < kPieces; ++i) EXPECT_TRUE(reply->write(path + ":" + std::to_string(i) + "\n"));
      reply->end();
    });
  });
  auto client = HttpClient::create("http://" + server->address());
  ASSERT_TRUE(client.ok());
  std::vector<std::string> got(kStreams);
  std::atomic<int> done{0};
  for (int s = 0; s < kStreams; ++s) {
    (*client)->request({.target = "/" + std::to_string(s)},
                       {.on_data = [&got, s](std::string_view bytes) { got[static_cast<std::size_t>(s)] += bytes; },
                        .on_done =
                            [&done](Status status) {
                              EXPECT_TRUE(status.ok()) << status.message();
                              ++done;
                            }});
  }
  ASSERT_TRUE(eventually([&] { return done == kStreams; }, 20));
  for (int s = 0; s < kStreams; ++s) {
    std::string want;
    for (int i = 0; i < kPieces; ++i) want += "/" + std::to_string(s) + ":" + std::to_string(i) + "\n";
    EXPECT_EQ(got[static_cast<std::size_t>(s)], want);
  }
  for (auto& writer : writers) writer.join();
}

TEST(HttpStream, SlowReaderIsCutOff) {
  HttpLimits limits;
  limits.max_queued_bytes = 256 << 10;
  Kept kept;
  auto server = start_server(limits, kept.handler());
  RawClient client(server->port(), 4096);
  client.send(get("/"));
  const auto reply = kept.take();
  std::atomic<int> told{0};
  reply->on_disconnect([&] { ++told; });
  reply->start(200, {});
  const std::string piece(4096, 'x');
  std::size_t written = 0;
  // The kernel takes some megabytes of its own.
  while (reply->write(piece) && written < (std::size_t{256} << 20)) {
    written += piece.size();
    if (written % (64 << 10) == 0) usleep(100);
  }
  EXPECT_LT(written, std::size_t{32} << 20);
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_FALSE(reply->write("x"));
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
}

TEST(HttpStream, ReaderThatTakesNothingIsCutOffInTime) {
  HttpLimits limits;
  limits.write_timeout_s = 0.3;
  Kept kept;
  auto server = start_server(limits, kept.handler());
  RawClient client(server->port(), 4096);
  client.send(get("/"));
  kept.take()->send(200, {}, std::string(32 << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
  // One that does read, slowly, gets everything.
  RawClient slow(server->port(), 4096);
  slow.send(get("/"));
  kept.take()->send(200, {}, std::string(1 << 20, 'y'));
  EXPECT_NE(slow.read_until("\r\n\r\n"), "");
  EXPECT_EQ(server->stats().connections, 1);
}

// The disconnect is noticed while the reply is made, before anything is written.
TEST(HttpStream, DisconnectIsNoticed) {
  Kept kept;
  auto server = start_server({}, kept.handler());
  enum Way { kClose, kReset, kHalf, kAfterPipelined, kMidStream };
  for (const Way way : {kClose, kReset, kHalf, kAfterPipelined, kMidStream}) {
    RawClient client(server->port());
    client.send(get("/"));
    if (way == kAfterPipelined) client.send(get("/next") + get("/third"));
    const auto reply = kept.take();
    std::atomic<int> told{0};
    reply->on_disconnect([&] { ++told; });
    if (way == kMidStream) {
      reply->start(200, {});
      reply->write("x");
      client.read_until("\r\n\r\n");
    }
    EXPECT_EQ(told, 0);
    if (way == kReset) {
      client.reset();
    } else if (way == kHalf) {
      client.end_sending();
    } else {
      client.hang_up();
    }
    EXPECT_TRUE(eventually([&] { return told == 1; })) << way;
    EXPECT_FALSE(reply->write("x"));
    reply->send(200, {}, "nobody");
    bool at_once = false;
    reply->on_disconnect([&] { at_once = true; });
    EXPECT_TRUE(at_once);
    EXPECT_TRUE(kept.empty());  // of a client that is gone no further request runs
  }
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
}

// What a client sends ahead is kept to a bound, is not lost, and does not hide that it leaves.
TEST(HttpStream, SendingAheadIsBounded) {
  Kept kept;
  auto server = start_server({}, kept.handler());
  RawClient client(server->port());
  client.send(get("/"));
  const auto reply = kept.take();
  std::atomic<int> told{0};
  reply->on_disconnect([&] { ++told; });
  std::string ahead;
  for (int i = 0; i < 1000; ++i) ahead += get("/" + std::to_string(i));
  std::thread sender([&] { client.send(ahead); });
  usleep(50000);
  reply->send(200, {}, "first");
  EXPECT_NE(client.read_reply().find("first"), std::string::npos);
  for (int i = 0; i < 999; ++i) {
    kept.take()->send(200, {}, std::to_string(i));
    ASSERT_NE(client.read_reply().find("\r\n\r\n" + std::to_string(i)), std::string::npos) << i;
  }
  sender.join();
  const auto last = kept.take();
  last->on_disconnect([&] { ++told; });
  client.send(std::string(64 << 10, 'x'));  // more than is read ahead
  usleep(50000);
  EXPECT_EQ(told, 0);
  client.hang_up();
  EXPECT_TRUE(eventually([&] { return told == 1; }));
}

TEST(HttpStream, NoDisconnectAfterTheAnswer) {
  std::atomic<int> told{0};
  auto server = start_server({}, [&](HttpRequest, std::shared_ptr<HttpReply> reply) {
    reply->on_disconnect([&] { ++told; });
    reply->send(200, {}, "x");
  });
  for (int i = 0; i < 50; ++i) {
    RawClient client(server->port());
    client.send(get("/"));
    if (i % 2 == 0) client.read_reply();
  }
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace cadre::server
