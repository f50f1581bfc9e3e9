// What the server refuses, and what a client cannot make it do: limits of size, time and number.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

#include "raw_client.h"

namespace cadre::server {
namespace {

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(HttpLimits, HeaderAndBody) {
  HttpLimits limits;
  limits.max_header_bytes = 1000;
  limits.max_body_bytes = 1000;
  auto server = start_server(limits);
  const auto answer = [&](const std::string& bytes) {
    RawClient client(server->port());
    client.send(bytes);
    const std::string reply = client.read_all();
    EXPECT_TRUE(client.ended());
    return status_of_reply(reply);
  };
  EXPECT_EQ(answer(get("/", "Connection: close\r\nX: " + std::string(800, 'x') + "\r\n")), 200);
  EXPECT_EQ(answer(get("/", "X: " + std::string(1000, 'x') + "\r\n")), 431);
  EXPECT_EQ(answer("GET /" + std::string(5000, 'x')), 431);
  EXPECT_EQ(answer("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"), 413);
  // The client sends a long body all the same, and still sees why it was refused.
  EXPECT_EQ(answer(post("/", std::string(3 << 20, 'x'))), 413);
  EXPECT_EQ(answer("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"), 413);
}

TEST(HttpLimits, Timeouts) {
  HttpLimits limits;
  limits.header_timeout_s = 0.2;
  limits.body_timeout_s = 0.25;
  limits.idle_timeout_s = 0.3;
  auto server = start_server(limits);
  RawClient idle(server->port());
  RawClient header(server->port());
  header.send("GET / HT");
  RawClient body(server->port());
  body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123");
  RawClient kept(server->port());
  kept.send(get("/"));
  EXPECT_EQ(status_of_reply(kept.read_reply()), 200);
  EXPECT_EQ(status_of_reply(header.read_all()), 408);
  EXPECT_TRUE(header.ended());
  EXPECT_EQ(status_of_reply(body.read_all()), 408);
  EXPECT_TRUE(body.ended());
  EXPECT_EQ(idle.read_all(), "");  // nothing was asked, so nothing is said
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(kept.read_all(), "");
  EXPECT_TRUE(kept.ended());
}

// A byte now and then does not keep a request open.
TEST(HttpLimits, TricklingDoesNotExtendTheTime) {
  HttpLimits limits;
  limits.header_timeout_s = 0.3;
  auto server = start_server(limits);
  RawClient client(server->port());
  const auto start = std::chrono::steady_clock::now();
  client.send("GET / HTTP/1.1\r\nX: ");
  while (client.send("x") && !client.read_some(20)) {
    if (client.ended() || std::chrono::steady_clock::now() - start > std::chrono::seconds(5)) break;
  }
  EXPECT_EQ(status_of_reply(client.read_all()), 408);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
}

TEST(HttpLimits, Connections) {
  HttpLimits limits;
  limits.max_connections = 3;
  auto server = start_server(limits);
  std::vector<RawClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    clients.back().send(get("/"));
    EXPECT_EQ(status_of_reply(clients.back().read_reply()), 200);
  }
  for (int i = 0; i < 100; ++i) {
    RawClient more(server->port());
    more.send(get("/"));
    const std::string reply = more.read_all();
    EXPECT_EQ(status_of_reply(reply), 503);
    EXPECT_NE(reply.find("Retry-After: "), std::string::npos);
  }
  EXPECT_EQ(server->stats().rejected, 100);
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 2; }));
  RawClient again(server->port());
  again.send(get("/"));
  EXPECT_EQ(status_of_reply(again.read_reply()), 200);
}

std::string unfinished(std::size_t length, std::size_t sent) {
  return "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n" +
         std::string(sent, 'x');
}

TEST(HttpLimits, BodiesOfAllConnectionsTogether) {
  HttpLimits limits;
  limits.max_pending_body_bytes = 3000;
  auto server = start_server(limits);
  RawClient first(server->port());
  first.send(unfinished(2000, 1999));
  usleep(50000);
  RawClient second(server->port(), 0, "127.0.0.2");
  second.send(unfinished(2000, 1999));
  EXPECT_EQ(status_of_reply(first.read_all()), 408);  // it was given the time that the second takes now
  EXPECT_TRUE(first.ended());
  EXPECT_EQ(server->stats().given_up, 1);
  second.send("x");
  EXPECT_EQ(status_of_reply(second.read_reply()), 200);
  // No other can make room for one that is too much alone.
  RawClient third(server->port());
  third.send(unfinished(500, 400));
  usleep(50000);
  RawClient fourth(server->port());
  fourth.send(unfinished(5000, 4999));
  const std::string reply = fourth.read_all();
  EXPECT_EQ(status_of_reply(reply), 503);
  EXPECT_NE(reply.find("Retry-After: "), std::string::npos);
  third.send(std::string(100, 'x'));
  EXPECT_EQ(status_of_reply(third.read_reply()), 200);
  // One that is here at once never was pending.
  RawClient fifth(server->port());
  fifth.send(unfinished(4000, 4000));
  EXPECT_EQ(status_of_reply(fifth.read_reply()), 200);
}

// Stalled uploads of one address cost those of that address, not those of another.
TEST(HttpLimits, BodiesOfOnePeer) {
  HttpLimits limits;
  limits.max_pending_body_bytes = 100'000;
  limits.max_pending_body_bytes_per_peer = 5'000;
  auto server = start_server(limits);
  RawClient other(server->port(), 0, "127.0.0.2");
  other.send(unfinished(4000, 3999));
  usleep(50000);
  std::vector<RawClient> stalled;
  for (int i = 0; i < 20; ++i) {
    stalled.emplace_back(server->port());
    stalled.back().send(unfinished(2000, 1999));
    usleep(5000);  // in this order
    if (i < 2) continue;
    EXPECT_EQ(status_of_reply(stalled[static_cast<std::size_t>(i) - 2].read_all()), 408) << i;
  }
  EXPECT_EQ(server->stats().given_up, 18);
  other.send("x");
  EXPECT_EQ(status_of_reply(other.read_reply()), 200);
  for (std::size_t i : {18u, 19u}) {
    stalled[i].send("x");
    EXPECT_EQ(status_of_reply(stalled[i].read_reply()), 200);
  }
}

// 40 connections that stop just before the end of a large body, and a client with as large a one behind them. What was
// given up is not kept while those connections linger.
TEST(HttpLimits, StalledBodiesDoNotShutOutOthers) {
  constexpr std::size_t kBody = 1 << 20;
  HttpLimits limits;
  limits.max_body_bytes = kBody;
  limits.max_pending_body_bytes = 8 * kBody;
  for (const bool same_address : {true, false}) {
    auto server = start_server(limits);
    [[maybe_unused]] const std::size_t before = resident_bytes();
    std::vector<RawClient> stalled;
    for (int i = 0; i < 40; ++i) {
      stalled.emplace_back(server->port(), 0, ("127.0.0." + std::to_string(1 + (same_address ? 0 : i % 10))).c_str());
      stalled.back().send(unfinished(kBody, kBody - 100));
    }
    for (int i = 0; i < 5; ++i) {
      RawClient client(server->port());
      ASSERT_TRUE(client.send(unfinished(kBody, kBody))) << i;
      EXPECT_EQ(status_of_reply(client.read_reply()), 200) << same_address << i;
    }
#ifdef NDEBUG
    EXPECT_LT(resident_bytes() - std::min(before, resident_bytes()), 24 * kBody);
#endif
  }
}

TEST(HttpLimits, ThousandIdleConnections) {
  constexpr int kIdle = 1000;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t need = 2 * kIdle + 200;
  if (files.rlim_cur < need) {
    if (files.rlim_max != RLIM_INFINITY && files.rlim_max < need) {
      GTEST_SKIP() << "needs " << need << " open files, and the hard limit is " << files.rlim_max;
    }
    files.rlim_cur = need;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  }
  auto server = start_server();
  RawClient active(server->port());
  active.send(get("/"));
  EXPECT_EQ(status_of_reply(active.read_reply()), 200);
  const std::size_t before = resident_bytes();
  std::vector<RawClient> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.emplace_back(server->port());
    ASSERT_TRUE(idle.back().connected()) << i;
    if (i % 2 == 0) continue;  // half of them never said a word
    idle.back().send(post("/", std::string(20000, 'x')));
    EXPECT_EQ(status_of_reply(idle.back().read_reply()), 200);
  }
  ASSERT_TRUE(eventually([&] { return server->stats().connections == kIdle + 1; }));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) {
    active.send(get("/"));
    ASSERT_EQ(status_of_reply(active.read_reply()), 200);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  RawClient fresh(server->port());
  fresh.send(get("/"));
  EXPECT_EQ(status_of_reply(fresh.read_reply()), 200);
#ifdef NDEBUG
  EXPECT_LT(resident_bytes() - std::min(before, resident_bytes()), std::size_t{16} << 20);
#else
  (void)before;
#endif
  for (int i = 0; i < kIdle; i += 50) {  // they still work
    idle[static_cast<std::size_t>(i)].send(get("/"));
    EXPECT_EQ(status_of_reply(idle[static_cast<std::size_t>(i)].read_reply()), 200);
  }
  idle.clear();
  EXPECT_TRUE(eventually([&] { return server->stats().connections <= 2; }));
}

// With no file descriptor left, accept fails; the server must neither spin nor end, and goes on when there are some.
TEST(HttpLimits, OutOfFileDescriptors) {
  auto server = start_server();
  RawClient first(server->port());
  first.send(get("/"));
  EXPECT_EQ(status_of_reply(first.read_reply()), 200);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  rlimit few = files;
  few.rlim_cur = static_cast<rlim_t>(next) + 1;  // one more: the client's side of a connection
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  RawClient waiting(server->port());
  EXPECT_TRUE(waiting.connected());
  waiting.send(get("/"));
  rusage begin{}, end{};
  getrusage(RUSAGE_SELF, &begin);
  for (int i = 0; i < 20; ++i) {
    usleep(10000);
    first.send(get("/"));
    EXPECT_EQ(status_of_reply(first.read_reply()), 200);
  }
  getrusage(RUSAGE_SELF, &end);
  const auto micros = [](const timeval& t) { return t.tv_sec * 1000000 + t.tv_usec; };
  EXPECT_LT(micros(end.ru_utime) + micros(end.ru_stime) - micros(begin.ru_utime) - micros(begin.ru_stime), 150000);
  EXPECT_EQ(server->stats().accepted, 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(status_of_reply(waiting.read_reply()), 200);
}

}  // namespace
}  // namespace cadre::server
