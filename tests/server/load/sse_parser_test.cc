#include "server/load/sse_parser.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace cadre::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> parse(const std::vector<std::string>& pieces, SseParser parser = SseParser()) {
  std::vector<std::string> events;
  for (const std::string& piece : pieces) {
    parser.feed(piece, [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

TEST(SseParser, EveryCutGivesTheSameEvents) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    std::string text;
    for (const char* line : {": ping", "", "data: {\"a\": 1}", "", "event: x", "data:two", "data:  lines", "id: 7", "",
                             "retry: 9", "", "data", "", "data: [DONE]", ""}) {
      text += line + end;
    }
    const std::vector<std::string> want = {"{\"a\": 1}", "two\n lines", "", "[DONE]"};
    EXPECT_EQ(parse({text}), want);
    for (std::size_t i = 0; i <= text.size(); ++i) {
      for (std::size_t j = i; j <= text.size(); ++j) {
        ASSERT_EQ(parse({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), want) << i << " " << j;
      }
    }
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(parse(bytes), want);
  }
}

TEST(SseParser, AnEventIsCompleteWithItsEmptyLineOnly) {
  EXPECT_THAT(parse({"data: 1\n"}), IsEmpty());
  EXPECT_THAT(parse({"data: 1\n", "\n"}), ElementsAre("1"));
  EXPECT_THAT(parse({"database: 1\n\n"}), IsEmpty());
}

TEST(SseParser, AnEventOverTheLimitEndsIt) {
  SseParser parser(16);
  int events = 0;
  const auto count = [&](std::string_view) { ++events; };
  EXPECT_TRUE(parser.feed("data: 1234\n\n", count));
  EXPECT_FALSE(parser.feed("data: 12345\ndata: 123456789\n\n", count));
  EXPECT_FALSE(parser.feed("data: 1\n\n", count));
  EXPECT_EQ(events, 1);
  SseParser other(16);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(other.feed("x", count));
  EXPECT_FALSE(other.feed("x", count));
}

}  // namespace
}  // namespace cadre::server
