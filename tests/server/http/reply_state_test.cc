#include "server/http/reply_state.h"

#include <gtest/gtest.h>

namespace cadre::server {
namespace {

TEST(ReplyState, WakesOncePerTake) {
  int wakes = 0;
  ReplyState reply([&] { ++wakes; }, 1000);
  reply.start(200, {});
  EXPECT_TRUE(reply.write("a"));
  EXPECT_TRUE(reply.write("b"));
  EXPECT_EQ(wakes, 1);
  std::string data;
  const auto first = reply.take(data);
  EXPECT_TRUE(first.head && !first.ended && !first.whole);
  EXPECT_EQ(data, "ab");
  reply.end();
  EXPECT_EQ(wakes, 2);
  data.clear();
  const auto second = reply.take(data);
  EXPECT_TRUE(second.ended && !second.head && !second.truncated);
  EXPECT_FALSE(reply.write("c"));
}

TEST(ReplyState, CutsOffWhatPilesUp) {
  ReplyState reply([] {}, 10);
  bool told = false;
  reply.on_disconnect([&] { told = true; });
  reply.start(200, {});
  EXPECT_TRUE(reply.write(std::string(100, 'x')));  // one piece is always taken
  EXPECT_FALSE(reply.write("y"));
  EXPECT_FALSE(reply.write("z"));
  std::string data;
  EXPECT_TRUE(reply.take(data).cut);
  EXPECT_FALSE(told);
  reply.lose();
  EXPECT_TRUE(told);

  ReplyState moving([] {}, 10);
  moving.start(200, {});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(moving.write("123456"));
    std::string taken;
    moving.take(taken);
    moving.sent(taken.size());
  }
}

TEST(ReplyState, OneAnswer) {
  ReplyState reply([] {}, 10);
  reply.send(200, {}, "first");
  reply.send(500, {}, "second");
  reply.start(500, {});
  EXPECT_FALSE(reply.write("x"));
  reply.end();
  reply.abandon();
  std::string data;
  const auto taken = reply.take(data);
  EXPECT_EQ(taken.status, 200);
  EXPECT_EQ(data, "first");
  EXPECT_FALSE(taken.unanswered || taken.truncated);
}

TEST(ReplyState, Abandoned) {
  std::string data;
  ReplyState none([] {}, 10);
  none.abandon();
  EXPECT_TRUE(none.take(data).unanswered);
  ReplyState half([] {}, 10);
  half.start(200, {});
  half.abandon();
  EXPECT_TRUE(half.take(data).truncated);
}

TEST(ReplyState, DisconnectIsToldOnceAndNeverAfterTheAnswer) {
  int told = 0;
  ReplyState reply([] {}, 10);
  reply.on_disconnect([&] { told += 100; });
  reply.on_disconnect([&] { ++told; });
  reply.lose();
  reply.lose();
  EXPECT_EQ(told, 1);
  reply.on_disconnect([&] { ++told; });  // it already is gone
  EXPECT_EQ(told, 2);
  reply.send(200, {}, "nobody");

  ReplyState done([] {}, 10);
  done.on_disconnect([&] { told += 100; });
  done.send(200, {}, "x");
  done.lose();
  done.on_disconnect([&] { told += 100; });
  EXPECT_EQ(told, 2);
}

// A function that owns the reply's own handle must neither leak nor lock up.
TEST(ReplyState, FunctionMayOwnTheHandle) {
  const auto state = std::make_shared<ReplyState>([] {}, 10);
  const std::weak_ptr<ReplyState> watch = state;
  {
    auto handle = std::make_shared<ReplyHandle>(state);
    handle->on_disconnect([handle] { handle->end(); });
    handle->send(200, {}, "x");
  }
  EXPECT_EQ(state.use_count(), 1);
  auto second = std::make_shared<ReplyState>([] {}, 10);
  {
    auto handle = std::make_shared<ReplyHandle>(second);
    handle->on_disconnect([handle] { throw 1; });
  }
  second->lose();
  EXPECT_EQ(second.use_count(), 1);
}

}  // namespace
}  // namespace cadre::server
