#include "server/access/limits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cadre::server {
namespace {

using Ticket = Limiter::Ticket;

Caller caller(const std::string& tenant, TenantLimits limits) {
  Grant grant;
  grant.tenant = tenant;
  grant.limits = limits;
  return Caller{std::make_shared<const Grant>(std::move(grant))};
}

// A limiter whose time stands still unless told.
struct Fixture {
  double now = 1000;
  Limiter limiter;
  explicit Fixture(int running = 1000, int queued = 1000, int reserved = 0)
      : limiter({.max_running = running, .max_queued = queued, .reserved = reserved, .now = [this] { return now; }}) {}

  // The seconds to wait; 0: admitted, and let go at once.
  std::int64_t wait(const Caller& who, std::int64_t prompt = 0) {
    auto answer = limiter.admit(who);
    if (const auto* refusal = std::get_if<Refusal>(&answer)) return checked(*refusal);
    const auto refusal = std::get<Ticket>(answer).charge_prompt(prompt);
    return refusal ? checked(*refusal) : 0;
  }
  static std::int64_t checked(const Refusal& refusal) {
    EXPECT_EQ(refusal.status, 429);
    EXPECT_EQ(refusal.code, "rate_limit_exceeded");
    EXPECT_GE(refusal.retry_after_s, 1);
    EXPECT_FALSE(refusal.reason.empty());
    EXPECT_NE(refusal.message.find("try again in " + std::to_string(refusal.retry_after_s) + " s"), std::string::npos);
    return refusal.retry_after_s;
  }
};

TEST(Limits, NoneByDefault) {
  Fixture f;
  const Caller a = caller("a", {});
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(f.wait(a, 1'000'000), 0);
}

TEST(Limits, RequestsAMinute) {
  Fixture f;
  const Caller a = caller("a", {.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_EQ(f.wait(a), 0) << i;
  EXPECT_EQ(f.wait(a), 10);  // one every ten seconds
  f.now += 4;
  EXPECT_EQ(f.wait(a), 6);
  f.now += 5.5;
  EXPECT_EQ(f.wait(a), 1);
  f.now += 0.5;
  EXPECT_EQ(f.wait(a), 0);
  EXPECT_EQ(f.wait(a), 10);
  f.now += 1e6;  // never more than a minute's worth is saved
  for (int i = 0; i < 6; ++i) EXPECT_EQ(f.wait(a), 0) << i;
  EXPECT_EQ(f.wait(a), 10);
  EXPECT_EQ(f.wait(caller("b", {.requests_per_minute = 6})), 0);
}

// Whoever waits as long as was said gets in, for rates that are no neat numbers.
TEST(Limits, TheWaitSaidIsEnough) {
  for (const std::int64_t rate : {1, 3, 7, 59, 61, 997, 100'003}) {
    Fixture f;
    const Caller a = caller("a", {.requests_per_minute = rate, .tokens_per_minute = 10 * rate});
    std::int64_t wait = 0;
    for (std::int64_t i = 0; i <= rate && wait == 0; ++i) wait = f.wait(a, 10);
    ASSERT_GT(wait, 0);
    f.now += static_cast<double>(wait);
    EXPECT_EQ(f.wait(a, 10), 0) << rate;
  }
}

TEST(Limits, TokensAMinute) {
  Fixture f;
  const Caller a = caller("a", {.tokens_per_minute = 600});
  auto answer = f.limiter.admit(a);
  ASSERT_TRUE(std::holds_alternative<Ticket>(answer));
  Ticket ticket = std::get<Ticket>(std::move(answer));
  EXPECT_FALSE(ticket.charge_prompt(500));
  EXPECT_EQ(f.wait(a, 200), 10);  // 100 are left, 100 more come in ten seconds
  EXPECT_EQ(f.wait(a, 100), 0);
  ticket.charge_generated(300);  // an answer goes on; what it took is owed
  EXPECT_EQ(f.wait(a, 1), 31);
  EXPECT_EQ(f.wait(a, 0), 31);
  f.now += 31;
  EXPECT_EQ(f.wait(a, 10), 0);
  EXPECT_EQ(f.wait(a, 10), 1);
}

TEST(Limits, APromptThatNeverFits) {
  Fixture f;
  auto answer = f.limiter.admit(caller("a", {.requests_per_minute = 1, .tokens_per_minute = 100}));
  const auto refusal = std::get<Ticket>(answer).charge_prompt(101);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 400);
  EXPECT_EQ(refusal->retry_after_s, 0);
  EXPECT_EQ(refusal->message, "the prompt has 101 tokens, this key's limit is 100 a minute");
  // The refused request took nothing.
  EXPECT_EQ(f.wait(caller("a", {.requests_per_minute = 1, .tokens_per_minute = 100}), 100), 0);
}

TEST(Limits, TakenBack) {
  Fixture f;
  const Caller a = caller("a", {.requests_per_minute = 1, .tokens_per_minute = 100});
  {
    auto answer = f.limiter.admit(a);
    Ticket& ticket = std::get<Ticket>(answer);
    EXPECT_FALSE(ticket.charge_prompt(100));
    ticket.take_back();
    ticket.take_back();  // once
  }
  EXPECT_EQ(f.wait(a, 100), 0);
  EXPECT_EQ(f.wait(a, 100), 60);
}

TEST(Limits, Concurrency) {
  Fixture f;
  const Caller a = caller("a", {.max_concurrency = 2}), b = caller("b", {.max_concurrency = 2});
  std::vector<Ticket> held;
  for (int i = 0; i < 2; ++i) held.push_back(std::get<Ticket>(f.limiter.admit(a)));
  auto third = f.limiter.admit(a);
  ASSERT_TRUE(std::holds_alternative<Refusal>(third));
  EXPECT_EQ(std::get<Refusal>(third).reason, "concurrency");
  EXPECT_EQ(f.wait(b), 0);
  held.pop_back();
  EXPECT_EQ(f.wait(a), 0);
  Ticket moved = std::move(held.back());
  held.clear();
  EXPECT_EQ(f.limiter.in_flight(), 1);
  moved.release();
  moved.release();
  EXPECT_EQ(f.limiter.in_flight(), 0);
}

TEST(Limits, TheWholeServer) {
  Fixture f(2, 3);
  const Caller a = caller("a", {}), b = caller("b", {});
  std::vector<Ticket> held;
  for (int i = 0; i < 5; ++i) held.push_back(std::get<Ticket>(f.limiter.admit(i % 2 ? a : b)));
  EXPECT_EQ(f.limiter.in_flight(), 5);
  auto sixth = f.limiter.admit(a);
  ASSERT_TRUE(std::holds_alternative<Refusal>(sixth));
  EXPECT_EQ(std::get<Refusal>(sixth).reason, "queue_full");
  EXPECT_EQ(std::get<Refusal>(sixth).status, 429);
  held.pop_back();
  EXPECT_EQ(f.wait(a), 0);
  EXPECT_TRUE(std::holds_alternative<Refusal>(f.limiter.admit(a, 2)));  // one place is there
  held.clear();
  // More sequences than there are places: alone it may.
  auto large = f.limiter.admit(a, 50);
  EXPECT_TRUE(std::holds_alternative<Ticket>(large));
  EXPECT_EQ(f.limiter.in_flight(), 50);
}

TEST(Limits, PlacesForThoseWhoHaveNone) {
  Fixture f(1, 4, 2);
  const Caller greedy = caller("greedy", {}), other = caller("other", {});
  std::vector<Ticket> held;
  while (true) {
    auto answer = f.limiter.admit(greedy);
    if (std::holds_alternative<Refusal>(answer)) break;
    held.push_back(std::get<Ticket>(std::move(answer)));
  }
  EXPECT_EQ(held.size(), 3u);
  auto first = f.limiter.admit(other);
  EXPECT_TRUE(std::holds_alternative<Ticket>(first));
  EXPECT_TRUE(std::holds_alternative<Refusal>(f.limiter.admit(other)));
}

TEST(Limits, WaitGrowsWithTheQueue) {
  Fixture f(1, 100);
  const Caller a = caller("a", {});
  for (int i = 0; i < 100; ++i) {  // requests that take four seconds each
    auto answer = f.limiter.admit(a);
    f.now += 4;
  }
  std::vector<Ticket> held;
  for (int i = 0; i < 101; ++i) held.push_back(std::get<Ticket>(f.limiter.admit(a)));
  auto refused = f.limiter.admit(a);
  EXPECT_EQ(std::get<Refusal>(refused).retry_after_s, 60);  // 400 s, but no one is sent away for more than a minute
}

TEST(Limits, ReloadKeepsWhatWasUsed) {
  Fixture f;
  EXPECT_EQ(f.wait(caller("a", {.requests_per_minute = 1})), 0);
  EXPECT_GT(f.wait(caller("a", {.requests_per_minute = 1})), 0);
  f.limiter.retain({"a"});
  EXPECT_GT(f.wait(caller("a", {.requests_per_minute = 1})), 0);
  // A lower limit holds at once, a higher one fills from where it was.
  EXPECT_EQ(f.wait(caller("b", {.requests_per_minute = 100})), 0);
  EXPECT_EQ(f.wait(caller("b", {.requests_per_minute = 1})), 0);
  EXPECT_GT(f.wait(caller("b", {.requests_per_minute = 1})), 0);
  EXPECT_EQ(f.limiter.tenants(), 2u);
  Ticket held = std::get<Ticket>(f.limiter.admit(caller("c", {})));
  f.limiter.retain({"b"});
  EXPECT_EQ(f.limiter.tenants(), 2u);  // a is gone, c is under way
  held.release();
  f.limiter.retain({"b"});
  EXPECT_EQ(f.limiter.tenants(), 1u);
}

TEST(Limits, TicketOutlivesTheLimiter) {
  Ticket ticket;
  {
    Limiter limiter({});
    ticket = std::get<Ticket>(limiter.admit(caller("a", {.tokens_per_minute = 5})));
  }
  ticket.charge_generated(3);
  ticket.release();
  ticket.charge_generated(3);
  EXPECT_FALSE(ticket.charge_prompt(3));
}

TEST(Limits, FromManyThreads) {
  Limiter limiter({.max_running = 4, .max_queued = 4});
  const Caller a = caller("a", {.tokens_per_minute = 1'000'000'000, .max_concurrency = 3}), b = caller("b", {});
  std::atomic<int> inside{0}, most{0}, admitted{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2'000; ++i) {
        auto answer = limiter.admit(t % 2 ? a : b);
        if (std::holds_alternative<Refusal>(answer)) {
          ++refused;
          continue;
        }
        ++admitted;
        Ticket ticket = std::get<Ticket>(std::move(answer));
        const int now = t % 2 ? ++inside : 0;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        EXPECT_FALSE(ticket.charge_prompt(1));
        ticket.charge_generated(1);
        EXPECT_LE(limiter.in_flight(), 8);
        if (i % 64 == 0) std::this_thread::yield();
        if (t % 2) --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_GT(admitted, 0);
  EXPECT_EQ(admitted + refused, 16'000);
  EXPECT_EQ(limiter.in_flight(), 0);
}

}  // namespace
}  // namespace cadre::server
