#include "server/http/request_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cadre::server {
namespace {

// All requests in `bytes`, in words, handed over in pieces of `piece` bytes.
std::vector<std::string> read_all(std::string_view bytes, std::size_t piece, const HttpLimits& limits) {
  RequestReader reader(limits);
  std::vector<std::string> seen;
  std::string held;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    held += bytes.substr(at, piece);
    for (;;) {
      held.erase(0, reader.feed(held));
      if (reader.state() == RequestReader::State::kError) {
        seen.push_back("error " + std::to_string(reader.error_status()) + " " + reader.error_message());
        return seen;
      }
      if (reader.state() != RequestReader::State::kDone) break;
      const bool keep = reader.keep_alive();
      const HttpRequest request = reader.take();
      std::string text = request.method + " " + request.path + "?" + request.query + " [" + request.body + "]";
      for (const auto& [name, value] : request.headers) text += " " + name + "=" + value;
      seen.push_back(text + (keep ? " keep" : " close"));
      if (held.empty()) break;
    }
  }
  return seen;
}

std::string one(std::string_view bytes, const HttpLimits& limits = {}) {
  const auto seen = read_all(bytes, bytes.size(), limits);
  return seen.empty() ? "more" : seen.front();
}

TEST(RequestReader, ReadsRequests) {
  EXPECT_EQ(one("GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"), "GET /a?b [] Host=h keep");
  EXPECT_EQ(one("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), "GET /? [] Host=h Connection=close close");
  EXPECT_EQ(one("GET / HTTP/1.0\r\n\r\n"), "GET /? [] close");
  EXPECT_EQ(one("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), "GET /? [] Connection=keep-alive keep");
  EXPECT_EQ(one("\r\n\r\nGET / HTTP/1.0\r\n\r\n"), "GET /? [] close");
  EXPECT_EQ(one("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"), "POST /? [abc] Content-Length=3 close");
  EXPECT_EQ(one("POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n"), "POST /? [] Content-Length=0 close");
  EXPECT_EQ(one("POST / HTTP/1.1\r\nHost:h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n1\r\nd\r\n0\r\nT: "
                "x\r\n\r\n"),
            "POST /? [abcd] Host=h Transfer-Encoding=chunked keep");
  EXPECT_EQ(one("GET / HTTP/1.1\r\nHost: h\r\n"), "more");
}

TEST(RequestReader, SplitAtEveryByte) {
  const std::string stream =
      "\r\nGET /one?q HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n"
      "POST /two HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
      "POST /three HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;e\r\nworld\r\nA\r\n0123456789\r\n0\r\nT: "
      "r\r\n\r\n"
      "POST /empty HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
      "GET /four HTTP/1.0\r\n\r\n"
      "GET /five HTTP/1.1\r\nNo host\r\n\r\n";
  const auto whole = read_all(stream, stream.size(), {});
  ASSERT_EQ(whole.size(), 6u);
  EXPECT_EQ(whole[2], "POST /three? [world0123456789] Host=h Transfer-Encoding=chunked keep");
  EXPECT_EQ(whole[5].substr(0, 9), "error 400");
  for (std::size_t piece = 1; piece < stream.size(); ++piece) EXPECT_EQ(read_all(stream, piece, {}), whole) << piece;
}

TEST(RequestReader, RefusesWhatCouldBeReadTwoWays) {
  const std::string start = "POST / HTTP/1.1\r\nHost: h\r\n";
  for (const std::string& rest :
       std::vector<std::string>{"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                                "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
                                "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
                                "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
                                "Content-Length: 3, 3\r\n\r\nabc",
                                "Content-Length: +3\r\n\r\nabc",
                                "Content-Length: -1\r\n\r\n",
                                "Content-Length: 0x3\r\n\r\n",
                                "Content-Length:\r\n\r\n",
                                "Content-Length: 99999999999999999999999\r\n\r\n",
                                "Content-Length : 3\r\n\r\nabc",
                                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                                "X: a\r\n folded\r\n\r\n",
                                " X: a\r\n\r\n",
                                "X: a\nY: b\r\n\r\n",
                                "X: a\r\r\n\r\n",
                                "X: a\rb\r\n\r\n",
                                "X: a\x01\r\n\r\n",
                                std::string("X: a\0b\r\n\r\n", 10),
                                "X\r\n\r\n",
                                ": a\r\n\r\n",
                                "X y: a\r\n\r\n",
                                "Host: other\r\n\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
                                "Transfer-Encoding: chunked\r\n\r\nx\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n1 1\r\nx\r\n0\r\n\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n"}) {
    const std::string result = one(start + rest);
    EXPECT_TRUE(result.substr(0, 9) == "error 400" || result.substr(0, 9) == "error 413") << rest << " -> " << result;
  }
  for (const std::string rest : {"Transfer-Encoding: gzip\r\n\r\n", "Transfer-Encoding: chunked, gzip\r\n\r\n",
                                 "Transfer-Encoding: gzip, chunked\r\n\r\n", "Transfer-Encoding: xchunked\r\n\r\n",
                                 "Transfer-Encoding: identity\r\n\r\n"}) {
    EXPECT_EQ(one(start + rest).substr(0, 9), "error 501") << rest;
  }
}

TEST(RequestReader, RefusesBadRequestLines) {
  for (const std::string line :
       {"GET / HTTP/1.1 ", "GET  / HTTP/1.1", "GET / HTTP/1.2", "GET / http/1.1", "GET /", "GET", "G\"T / HTTP/1.1",
        " GET / HTTP/1.1", "GET x HTTP/1.1", "CONNECT host:80 HTTP/1.1", "GET /%zz HTTP/1.1", "GET / HTTP/11",
        "GET /\t HTTP/1.1", "GET /\xc3\xa9 HTTP/1.1", "\x16\x03\x01"}) {
    EXPECT_EQ(one(std::string(line) + "\r\nHost: h\r\n\r\n").substr(0, 9), "error 400") << line;
  }
  EXPECT_EQ(one("PRI * HTTP/2.0\r\n\r\n").substr(0, 9), "error 505");
  EXPECT_EQ(one("GET / HTTP/1.1\r\n\r\n"), "error 400 Host is missing");
  EXPECT_NE(one("\x16\x03\x01").find("TLS"), std::string::npos);  // at once, not after a timeout
}

TEST(RequestReader, Limits) {
  HttpLimits limits;
  limits.max_header_bytes = 100;
  limits.max_body_bytes = 10;
  const std::string fixed = "GET / HTTP/1.0\r\nX: \r\n\r\n";
  const auto header = [&](std::size_t size) {
    return "GET / HTTP/1.0\r\nX: " + std::string(size - fixed.size(), 'x') + "\r\n\r\n";
  };
  EXPECT_EQ(one(header(100), limits).substr(0, 3), "GET");
  EXPECT_EQ(one(header(101), limits).substr(0, 9), "error 431");
  EXPECT_EQ(one(std::string(100, 'x'), limits).substr(0, 9), "error 431");
  EXPECT_EQ(one("POST / HTTP/1.0\r\nContent-Length: 10\r\n\r\n0123456789", limits).substr(0, 4), "POST");
  EXPECT_EQ(one("POST / HTTP/1.0\r\nContent-Length: 11\r\n\r\n", limits).substr(0, 9), "error 413");
  const std::string chunked = "POST / HTTP/1.1\r\nHost:h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(one(chunked + "5\r\n01234\r\n5\r\n01234\r\n0\r\n\r\n", limits).substr(0, 4), "POST");
  EXPECT_EQ(one(chunked + "5\r\n01234\r\n6\r\n", limits).substr(0, 9), "error 413");
  EXPECT_EQ(one(chunked + "5;" + std::string(200, 'e'), limits).substr(0, 9), "error 431");
  EXPECT_EQ(one(chunked + std::string(200, '0') + "1\r\nx\r\n", limits).substr(0, 9), "error 431");
  EXPECT_EQ(one(chunked + "0\r\nT: " + std::string(200, 't') + "\r\n\r\n", limits).substr(0, 9), "error 431");
  std::string extensions = chunked;  // each short, together without end
  for (int i = 0; i < 10; ++i) extensions += "1;" + std::string(40, 'e') + "\r\nx\r\n";
  EXPECT_EQ(one(extensions, limits), "error 400 a chunk extension is malformed");
  EXPECT_EQ(one(std::string(202, '\r'), limits).substr(0, 9), "error 400");
  std::string empty_lines;
  for (int i = 0; i < 60; ++i) empty_lines += "\r\n";
  EXPECT_EQ(one(empty_lines, limits).substr(0, 9), "error 400");
}

TEST(RequestReader, Expectations) {
  const HttpLimits limits;
  RequestReader reader(limits);
  const std::string header = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n";
  EXPECT_EQ(reader.feed(header), header.size());
  EXPECT_EQ(reader.state(), RequestReader::State::kBody);
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(reader.feed("ab"), 2u);
  EXPECT_FALSE(reader.expects_continue());
  EXPECT_EQ(reader.take().body, "ab");
  EXPECT_EQ(one("GET / HTTP/1.1\r\nHost: h\r\nExpect: cake\r\n\r\n").substr(0, 9), "error 417");
}

TEST(RequestReader, TrailersAreNoHeaders) {
  const std::string start = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
  EXPECT_EQ(one(start + "Authorization: Bearer x\r\n\r\n"), "POST /? [] Host=h Transfer-Encoding=chunked keep");
  EXPECT_EQ(one(start + "Content-Length: 5\r\n\r\n").substr(0, 9), "error 400");
}

}  // namespace
}  // namespace cadre::server
