#include "server/observe/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/json.h"
#include "support/status_matchers.h"

namespace cadre::server {
namespace {

// 2026-11-29T21:36:42.125Z
constexpr double kTime = 1795988202.125;

struct Lines {
  std::vector<std::string> lines;
  Log log;
  explicit Lines(LogFormat format, LogLevel level = LogLevel::kInfo)
      : log({.format = format,
             .level = level,
             .write = [this](std::string_view line) { lines.emplace_back(line); },
             .now = [] { return kTime; }}) {}
};

TEST(Log, Text) {
  Lines out(LogFormat::kText);
  out.log.write(LogLevel::kInfo, "request finished",
                {{"request_id", "r-1"}, {"status", 200}, {"seconds", 0.25}, {"stream", true}, {"adapter", ""}});
  out.log.write(LogLevel::kWarn, "draining");
  ASSERT_EQ(out.lines.size(), 2u);
  EXPECT_EQ(out.lines[0],
            "ts=2026-11-29T21:36:42.125Z level=info msg=\"request finished\" request_id=r-1 status=200 seconds=0.25 "
            "stream=true adapter=\"\"\n");
  EXPECT_EQ(out.lines[1], "ts=2026-11-29T21:36:42.125Z level=warning msg=draining\n");
}

TEST(Log, Json) {
  Lines out(LogFormat::kJson);
  out.log.write(LogLevel::kError, "no \"luck\"",
                {{"n", std::int64_t{-5}}, {"x", 0.5}, {"ok", false}, {"who", std::string("a\nb")}});
  ASSERT_EQ(out.lines.size(), 1u);
  EXPECT_EQ(
      out.lines[0],
      R"({"ts": "2026-11-29T21:36:42.125Z", "level": "error", "msg": "no \"luck\"", "n": -5, "x": 0.5, "ok": false, )"
      R"("who": "a\nb"})"
      "\n");
}

TEST(Log, Levels) {
  const std::vector<LogLevel> levels{LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError};
  for (const LogLevel least : levels) {
    Lines out(LogFormat::kText, least);
    for (const LogLevel level : levels) out.log.write(level, "x");
    EXPECT_EQ(out.lines.size(), levels.size() - static_cast<std::size_t>(least));
  }
  Lines off(LogFormat::kText, LogLevel::kOff);
  for (const LogLevel level : levels) off.log.write(level, "x");
  off.log.write(LogLevel::kOff, "x");
  EXPECT_TRUE(off.lines.empty());
}

// One line each whatever a client sent, without anything a terminal obeys, and of bounded length.
TEST(Log, NothingBreaksOut) {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  const std::vector<std::string> values{
      every, "x\nts=1 level=error msg=forged", "\x1b[2J\x1b]0;title\x07", "\xe2\x80\xa8\xc2\x85", "a=b c=\"d\"",
      "\\",  std::string(100'000, '\x01')};
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    Lines out(format);
    for (const std::string& value : values) out.log.write(LogLevel::kInfo, value, {{"value", value}});
    ASSERT_EQ(out.lines.size(), values.size());
    for (const std::string& line : out.lines) {
      EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
      EXPECT_EQ(line.back(), '\n');
      EXPECT_LT(line.size(), 20'000u);
      EXPECT_TRUE(std::all_of(line.begin(), line.end() - 1,
                              [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; }) ||
                  format == LogFormat::kJson);
      EXPECT_TRUE(
          std::none_of(line.begin(), line.end() - 1, [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
      if (format == LogFormat::kJson) {
        EXPECT_THAT(Json::parse(line, "line"), Succeeds());
      }
    }
  }
  Lines out(LogFormat::kText);
  out.log.write(LogLevel::kInfo, "x", {{"v", "a\"b\\c\nd\xff"}});
  EXPECT_TRUE(out.lines[0].ends_with(" v=\"a\\\"b\\\\c\\nd\\xff\"\n")) << out.lines[0];
}

TEST(Log, NumbersThatAreNone) {
  Lines out(LogFormat::kText);
  out.log.write(LogLevel::kInfo, "x",
                {{"a", std::nan("")}, {"b", std::numeric_limits<double>::infinity()}, {"c", 1e300}});
  EXPECT_TRUE(out.lines[0].ends_with(" a=nan b=inf c=1e+300\n")) << out.lines[0];
}

TEST(Log, FromManyThreads) {
  Lines out(LogFormat::kText);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) out.log.write(LogLevel::kInfo, "x", {{"t", t}, {"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::set<std::string> distinct(out.lines.begin(), out.lines.end());
  EXPECT_EQ(distinct.size(), 2'000u);
}

TEST(Log, Stderr) {
  testing::internal::CaptureStderr();
  Log log({});
  log.write(LogLevel::kInfo, "hello", {{"n", 1}});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("ts=2")) << text;
  EXPECT_TRUE(text.ends_with("Z level=info msg=hello n=1\n")) << text;
}

TEST(Log, Options) {
  EXPECT_EQ(*parse_log_level("warning"), LogLevel::kWarn);
  EXPECT_EQ(*parse_log_level("off"), LogLevel::kOff);
  EXPECT_THAT(parse_log_level("WARNING"), FailsWith(Code::kInvalidArgument, "want debug, info, warning, error or off"));
  EXPECT_EQ(*parse_log_format("json"), LogFormat::kJson);
  EXPECT_THAT(parse_log_format("xml"), FailsWith(Code::kInvalidArgument, "want text or json"));
}

TEST(RequestId, TakesWhatIsSane) {
  for (const char* id : {"a", "req-1", "3f2c.X_9", "-"}) EXPECT_EQ(request_id(id), id);
  EXPECT_EQ(request_id(std::string(64, 'a')), std::string(64, 'a'));
}

TEST(RequestId, MakesItsOwn) {
  const std::string tail(65, 'a');
  const std::vector<std::optional<std::string_view>> sent{
      std::nullopt, "",    "a b", "a\r\nSet-Cookie: x",       "a/b", "a\"",
      "\xc3\xa4",   "a;b", tail,  std::string_view("a\0b", 3)};
  std::set<std::string> made;
  for (int i = 0; i < 100; ++i) {
    for (const auto& id : sent) {
      const std::string mine = request_id(id);
      EXPECT_EQ(mine.size(), 36u);
      EXPECT_TRUE(mine.starts_with("req-"));
      EXPECT_EQ(request_id(mine), mine);
      made.insert(mine);
    }
  }
  EXPECT_EQ(made.size(), 100 * sent.size());
}

}  // namespace
}  // namespace cadre::server
