#include "server/load/load_call.h"

#include <gmock/gmock.h>

#include <string>

#include "base/result.h"

namespace cadre::server {
namespace {

using ::testing::HasSubstr;

LoadCall begin(int status = 200) {
  LoadRecord record;
  record.sent = 1;
  LoadCall call(record);
  call.header(status);
  return call;
}

TEST(LoadCall, TimesAndCountsOfAChat) {
  LoadCall call = begin();
  EXPECT_TRUE(call.data("data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n", 2));
  EXPECT_TRUE(call.data("data: {\"choices\": [{\"delta\": {\"content\": \"Au\"}}]}\n\nda", 3));
  EXPECT_TRUE(call.data("ta: {\"choices\": [{\"delta\": {\"content\": \", number 79\"}}]}\n\n", 3.5));
  EXPECT_TRUE(call.data("data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n", 4));
  EXPECT_TRUE(call.data(
      "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 5}}\n\ndata: [DONE]\n\n", 5));
  const LoadRecord record = call.done(Status(), 6);
  EXPECT_EQ(record.error, "");
  EXPECT_DOUBLE_EQ(record.first, 3);
  EXPECT_DOUBLE_EQ(record.last, 3.5);
  EXPECT_THAT(record.intervals, testing::ElementsAre(0.5f));
  EXPECT_EQ(record.prompt_tokens, 7);
  EXPECT_EQ(record.output_tokens, 5);
  EXPECT_TRUE(record.counted_by_server);
}

TEST(LoadCall, WithoutUsageThePiecesCount) {
  LoadCall call = begin();
  for (int i = 0; i < 3; ++i) call.data("data: {\"choices\": [{\"text\": \"x\"}]}\n\n", 2 + i);
  call.data("data: [DONE]\n\n", 9);
  const LoadRecord record = call.done(Status(), 9);
  EXPECT_EQ(record.output_tokens, 3);
  EXPECT_FALSE(record.counted_by_server);
  EXPECT_DOUBLE_EQ(record.last, 4);
}

TEST(LoadCall, AnAnswerWithoutTextIsAnswered) {
  LoadCall call = begin();
  call.data("data: {\"choices\": [{\"text\": \"\", \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n", 2);
  const LoadRecord record = call.done(Status(), 3);
  EXPECT_EQ(record.error, "");
  EXPECT_DOUBLE_EQ(record.first, 2);
}

TEST(LoadCall, OtherPiecesThanTextCount) {
  for (const char* delta : {R"({"reasoning_content": "hm"})", R"({"reasoning": "hm"})", R"({"tool_calls": [{}]})"}) {
    EXPECT_TRUE(read_piece(std::string(R"({"choices": [{"delta": )") + delta + "}]}").has_token) << delta;
  }
  EXPECT_FALSE(read_piece(R"({"choices": [{"delta": {"tool_calls": []}}], "usage": null})").has_token);
}

TEST(LoadCall, FailuresSayWhy) {
  LoadCall refused = begin(429);
  refused.data(R"({"error": {"message": "queue full", )", 2);
  refused.data(R"("type": "rate_limit"}})", 2);
  EXPECT_EQ(refused.done(Status(), 3).error, "429: queue full");
  EXPECT_EQ(error_text(404, "not found\n<html>"), "404: not found");
  EXPECT_EQ(error_text(400, R"({"object": "error", "message": "bad"})"), "400: bad");
  EXPECT_EQ(error_text(422, R"({"detail": "worse"})"), "422: worse");
  EXPECT_EQ(error_text(500, ""), "500");

  LoadCall cut = begin();
  cut.data("data: {\"choices\": [{\"text\": \"x\"}]}\n\n", 2);
  EXPECT_EQ(cut.done(Status(), 3).error, "the answer ended before its end");
  LoadCall nothing = begin();
  nothing.data("data: [DONE]\n\n", 2);
  EXPECT_EQ(nothing.done(Status(), 3).error, "the answer holds nothing");
  LoadCall broken = begin();
  EXPECT_FALSE(broken.data("data: {\"choices\": [\n\n", 2));
  EXPECT_THAT(broken.done(Status(), 3).error, HasSubstr("event"));
  LoadCall within = begin();
  EXPECT_FALSE(within.data("data: {\"error\": {\"message\": \"timed out\"}}\n\n", 2));
  EXPECT_EQ(within.done(Status(), 3).error, "timed out");
  LoadCall lost = begin();
  const LoadRecord record = lost.done(error(Code::kInvalidFile, "connection closed"), 3);
  EXPECT_EQ(record.error, "connection closed");
  EXPECT_DOUBLE_EQ(record.last, 3);
}

TEST(LoadCall, WhatIsNoReplyOfOursDoesNotHurt) {
  for (const char* text : {"null", "1", "[]", R"({"choices": 1})", R"({"choices": [1, null]})",
                           R"({"choices": [{"delta": 1, "text": 2}]})", R"({"usage": {"completion_tokens": -1}})",
                           R"({"error": 1})", R"({"error": {}})", "\xff", ""}) {
    const StreamPiece piece = read_piece(text);
    EXPECT_FALSE(piece.has_token) << text;
    EXPECT_FALSE(piece.output_tokens.has_value()) << text;
  }
  EXPECT_LE(error_text(500, std::string(100'000, 'x')).size(), 400u);
}

}  // namespace
}  // namespace cadre::server
