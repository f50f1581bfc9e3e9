// Malformed requests over real connections, several to a connection, ended in every way a client can: the server must
// answer or close, never hang, and still serve a good request. The requests are the same in every run; it goes on until
// the server has refused 100000 of them (20000 in builds with sanitizers), or as many as CADRE_HTTP_RANDOM says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "raw_client.h"

namespace cadre::server {
namespace {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  std::string request() {
    if (below(20) == 0) return noise(below(300));
    std::string text = kSeeds[below(kSeeds.size())];
    for (std::size_t i = below(5); i > 0; --i) mutate(text);
    return text;
  }

 private:
  std::string noise(std::size_t n) {
    std::string text(n, '\0');
    for (char& c : text) c = static_cast<char>(random_() & 0xff);
    return text;
  }

  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t n = std::min(text.size() - at, below(12));
    switch (below(7)) {
      case 0:
        text.erase(at, n);
        break;
      case 1:
        text.insert(at, noise(1 + below(3)));
        break;
      case 2:
        text.insert(at, kWords[below(kWords.size())]);
        break;
      case 3:
        text.insert(at, text.substr(at, n));
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 5:
        text.resize(at);
        break;
      default:
        text.insert(at, std::string(below(below(50) == 0 ? 40000 : 40), kFill[below(kFill.size())]));
        break;
    }
  }

  static const std::vector<std::string> kSeeds, kWords;
  static constexpr std::string_view kFill = std::string_view("a0 \r\n%/\0;,:\xff", 13);
  std::mt19937_64 random_;
};

const std::vector<std::string> Generator::kSeeds = {
    "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /v1/models?x=%20 HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nAuthorization: Bearer abc\r\n\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 15\r\n\r\n{\"model\": \"a\" }",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nT: x\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    "HEAD /%41 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
    "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100001\r\n\r\nab",
    "GET http://h/x HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n"};
const std::vector<std::string> Generator::kWords = {"\r\n",
                                                    "\n",
                                                    "\r\n\r\n",
                                                    " ",
                                                    "\t",
                                                    ":",
                                                    "HTTP/1.1",
                                                    "HTTP/2.0",
                                                    "Content-Length: 3\r\n",
                                                    "chunked",
                                                    "Transfer-Encoding: chunked\r\n",
                                                    "Host: x\r\n",
                                                    "-1",
                                                    "ffffffffffffffff",
                                                    "99999999999999999999",
                                                    "0\r\n\r\n",
                                                    "%00",
                                                    "%",
                                                    "/../",
                                                    "\r\n ",
                                                    "Expect: 100-continue\r\n",
                                                    "GET / HTTP/1.1\r\nHost: h\r\n\r\n"};

#ifdef NDEBUG
constexpr int kCount = 100000;
#else
constexpr int kCount = 20000;
#endif

TEST(HttpRandom, TheServerStaysAlive) {
  const char* asked = std::getenv("CADRE_HTTP_RANDOM");
  const int count = asked != nullptr ? std::atoi(asked) : kCount;
  ASSERT_GT(count, 0);
  HttpLimits limits;
  limits.max_body_bytes = 100000;
  limits.idle_timeout_s = limits.header_timeout_s = limits.body_timeout_s = 60;  // ended by the client, not by time
  std::int64_t handled = 0;                                                      // of the server's thread
  auto server = start_server(limits, [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
    ++handled;
    EXPECT_FALSE(request.path.empty());
    EXPECT_TRUE(request.path.front() == '/' || request.path == "*");
    EXPECT_LE(request.body.size(), limits.max_body_bytes);
    if (request.path != "/stream") return reply->send(200, {}, request.path);
    reply->start(200, {});
    reply->write("piece");
    reply->end();
  });
  Generator random(20240607);
  std::set<int> seen;
  int sent = 0, hung = 0;
  for (int round = 0; server->stats().malformed < count; ++round) {
    ASSERT_LT(round, 20 * count + 1000) << "the requests are hardly malformed";
    RawClient client(server->port());
    ASSERT_TRUE(client.connected()) << "after " << sent << " requests";
    std::string bytes;
    for (std::size_t i = 1 + random.below(8); i > 0; --i, ++sent) bytes += random.request();
    if (random.below(4) == 0) {
      const std::size_t cut = random.below(bytes.size() + 1);
      if (client.send(std::string_view(bytes).substr(0, cut))) client.send(std::string_view(bytes).substr(cut));
    } else {
      client.send(bytes);
    }
    const std::size_t end = random.below(10);
    if (end == 0) {
      client.reset();
      continue;
    }
    if (end == 1) continue;  // closed with everything unread
    client.end_sending();
    const std::string replies = client.read_all(10000);
    if (client.timed_out()) ++hung;
    ASSERT_EQ(hung, 0) << "no end of the connection after round " << round;
    for (std::size_t at = 0; (at = replies.find("HTTP/1.1 ", at)) != std::string::npos; ++at) {
      // A reply's body may have the words of a request.
      const int status = status_of_reply(std::string_view(replies).substr(at));
      if (status != 0) seen.insert(status);
    }
    if (round % 100 == 0) {
      RawClient good(server->port());
      good.send(get("/good"));
      ASSERT_NE(good.read_reply().find("\r\n\r\n/good"), std::string::npos) << "after " << sent << " requests";
    }
  }
  RawClient good(server->port());
  good.send(get("/good"));
  EXPECT_NE(good.read_reply().find("\r\n\r\n/good"), std::string::npos);
  good.hang_up();
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 0; }));
  EXPECT_TRUE(server->stop(5));
  // The requests were of every kind: good, and refused for each reason.
  for (const int status : {200, 400, 413, 417, 431, 501}) EXPECT_EQ(seen.count(status), 1u) << status;
  for (const int status : seen) EXPECT_NE(status, 500);
  EXPECT_GT(handled, count / 10);
  std::printf("%d requests sent, %lld handled, %lld refused\n", sent, static_cast<long long>(handled),
              static_cast<long long>(server->stats().malformed));
}

}  // namespace
}  // namespace cadre::server
