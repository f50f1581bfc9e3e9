#include "server/http/pending_bodies.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace cadre::server {
namespace {

class PendingBodiesTest : public testing::Test {
 protected:
  void limit(std::size_t all, std::size_t per_peer, std::size_t body = 1) {
    HttpLimits limits;
    limits.max_pending_body_bytes = all;
    limits.max_pending_body_bytes_per_peer = per_peer;
    limits.max_body_bytes = body;
    bodies = std::make_unique<PendingBodies>(limits);
  }
  void begin(char name, const std::string& peer) {
    held.emplace(name, bodies->begin(peer, [this, name] {
      given_up += name;
      end(name);
    }));
  }
  bool grow(char name, std::size_t bytes) { return bodies->grow(held.at(name), bytes); }
  void end(char name) {
    bodies->end(held.at(name));
    held.erase(name);
  }

  std::unique_ptr<PendingBodies> bodies;
  std::map<char, PendingBodies::Handle> held;
  std::string given_up;
};

TEST_F(PendingBodiesTest, TheOldestThatMakesRoomGivesUp) {
  limit(100, 1000);
  for (const char name : {'a', 'b', 'c', 'd'}) begin(name, std::string(1, name));
  EXPECT_TRUE(grow('a', 5));  // the oldest of all, and small
  EXPECT_TRUE(grow('b', 40));
  EXPECT_TRUE(grow('c', 55));
  EXPECT_TRUE(grow('d', 20));
  EXPECT_EQ(given_up, "b");
  EXPECT_EQ(bodies->bytes(), 80u);
  EXPECT_TRUE(grow('d', 25));
  EXPECT_EQ(given_up, "b");
  EXPECT_TRUE(grow('d', 46));  // six too much, and a has five
  EXPECT_EQ(given_up, "bc");
}

TEST_F(PendingBodiesTest, NoOlderOneMakesRoom) {
  limit(100, 1000);
  for (const char name : {'a', 'b', 'c'}) begin(name, std::string(1, name));
  EXPECT_TRUE(grow('a', 10));
  EXPECT_TRUE(grow('c', 90));
  EXPECT_FALSE(grow('b', 20));  // a has too little, c is younger
  EXPECT_EQ(given_up, "");
  end('b');
  EXPECT_EQ(bodies->bytes(), 100u);
  EXPECT_FALSE(grow('a', 11));
  end('a');
  EXPECT_TRUE(grow('c', 100));
  EXPECT_FALSE(grow('c', 101));
}

TEST_F(PendingBodiesTest, OnePeer) {
  limit(100, 30);
  begin('x', "other");
  begin('a', "one");
  begin('b', "one");
  EXPECT_TRUE(grow('x', 30));
  EXPECT_TRUE(grow('a', 20));
  EXPECT_TRUE(grow('b', 10));
  EXPECT_TRUE(grow('b', 11));
  EXPECT_EQ(given_up, "a");  // not x, though it is older
  EXPECT_FALSE(grow('b', 31));
  EXPECT_EQ(bodies->peers(), 2u);
  end('b');
  EXPECT_EQ(bodies->peers(), 1u);
}

TEST_F(PendingBodiesTest, APeersPartIsAQuarterAndAtLeastOneBody) {
  limit(100, 0);
  begin('a', "one");
  EXPECT_TRUE(grow('a', 25));
  EXPECT_FALSE(grow('a', 26));
  end('a');
  limit(100, 0, 60);
  begin('a', "one");
  EXPECT_TRUE(grow('a', 60));
  EXPECT_FALSE(grow('a', 61));
}

// However bodies come, grow and go: never over a limit, and the sums are those of what is held.
TEST_F(PendingBodiesTest, Sums) {
  limit(1000, 400);
  std::mt19937 random(7);
  std::map<char, std::size_t> sizes;
  std::map<char, std::string> peers;
  for (int i = 0; i < 20'000; ++i) {
    const char name = static_cast<char>('a' + random() % 26);
    if (!held.contains(name)) {
      peers[name] = std::to_string(random() % 5);
      sizes[name] = 0;
      begin(name, peers[name]);
    } else if (random() % 8 == 0) {
      end(name);
    } else if (!grow(name, sizes[name] += random() % 100)) {
      end(name);
    }
    std::size_t all = 0;
    std::map<std::string, std::size_t> of;
    for (const auto& [key, handle] : held) {
      all += sizes[key];
      of[peers[key]] += sizes[key];
    }
    ASSERT_EQ(bodies->bytes(), all) << i;
    ASSERT_EQ(bodies->peers(), of.size()) << i;
    ASSERT_LE(all, 1000u);
    for (const auto& [peer, bytes] : of) ASSERT_LE(bytes, 400u);
  }
  EXPECT_GT(given_up.size(), 100u);
}

}  // namespace
}  // namespace cadre::server
