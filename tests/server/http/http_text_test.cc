#include "server/http/http_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace cadre::server {
namespace {

TEST(HttpText, TargetsAreDecoded) {
  const auto path = [](std::string_view target) {
    auto parsed = parse_target("GET", target);
    return parsed.ok() ? parsed->path + "|" + parsed->query : "refused: " + parsed.status().message();
  };
  EXPECT_EQ(path("/"), "/|");
  EXPECT_EQ(path("/v1/models?a=%20b?c"), "/v1/models|a=%20b?c");
  EXPECT_EQ(path("/a%20b%2fc%C3%A9"), "/a b/c\xc3\xa9|");
  EXPECT_EQ(path("/a+b"), "/a+b|");
  EXPECT_EQ(path("http://host:80/x?y"), "/x|y");
  EXPECT_EQ(path("HTTP://host"), "/|");
  EXPECT_EQ(path("http://host?q"), "/|q");
}

TEST(HttpText, BadTargetsAreRefused) {
  for (const std::string_view target :
       {"",     "x",    "*",    "host:80", "ftp://host/", "http:///x", "/%",    "/%1",  "/%zz",  "/%00",
        "/%0a", "/%7f", "/%ff", "/%C3",    "/%ED%A0%80",  "/a#b",      "/a\\b", "/a b", "/\x80", "/\x7f"}) {
    EXPECT_THAT(parse_target("GET", target), FailsWith(Code::kInvalidArgument, "")) << target;
  }
  EXPECT_THAT(parse_target("OPTIONS", "*"), Succeeds());
}

TEST(HttpText, HeadsCannotBeBroken) {
  std::string out;
  append_head({.status = 200, .framing = BodyFraming::kLength, .length = 3, .date = "D"},
              {{"A", "b"},
               {"Evil", "x\r\nSet-Cookie: y"},
               {"Bad name", "x"},
               {"Line\r\n", "x"},
               {"content-length", "99"},
               {"Transfer-Encoding", "chunked"},
               {"Date", "then"}},
              out);
  EXPECT_EQ(out, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\nDate: D\r\n\r\n");
}

TEST(HttpText, ChunkLines) {
  const auto expect = [](ChunkLine want, const std::vector<std::string>& lines) {
    for (const std::string& bytes : lines) {
      EXPECT_EQ(look_at_chunk_line(bytes, false), want) << bytes;
      EXPECT_EQ(look_at_chunk_line("\r\n" + bytes, true), want) << bytes;
    }
  };
  expect(ChunkLine::kMore, {"", "5", "5\r", "5;a=b", "0", "0\r\n", "0\r\n\r", "000\r\nT: x\r\n", "0;x\r\nT: x\r\n\r"});
  expect(ChunkLine::kReady,
         {"5\r\n", "0a\r\n", "5;a=b\r\nx", "5;a=\"\\\"\"\r\n", "0\r\n\r\n", "00\r\nT: x\r\n\r\nGET"});
  expect(ChunkLine::kBad, {"x", "\r\n", "5\rx", "5\n", "5;a=\"\r\n\"\r\n", "5;\x01", "-1\r\n"});
  EXPECT_EQ(look_at_chunk_line("\r", true), ChunkLine::kMore);
  EXPECT_EQ(look_at_chunk_line("x", true), ChunkLine::kBad);
}

TEST(HttpText, Dates) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

}  // namespace
}  // namespace cadre::server
