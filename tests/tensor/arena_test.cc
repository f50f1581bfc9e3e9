#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include "support/status_matchers.h"
#include "tensor/exec.h"

namespace cadre {
namespace {

// The scratch memory of an imaginary block: two scopes after one another below one that stays.
std::vector<View> use(Arena& arena) {
  std::vector<View> views;
  const ArenaScope block(arena);
  views.push_back(arena.alloc(DType::kF32, {3, 5}));
  {
    const ArenaScope part(arena);
    views.push_back(arena.alloc(DType::kBF16, {7}));
    views.push_back(arena.alloc(DType::kF32, {100}));
  }
  {
    const ArenaScope part(arena);
    views.push_back(arena.alloc(DType::kF32, {33}));
    views.push_back(arena.alloc(DType::kU8, {0}));
    views.push_back(arena.alloc(DType::kU8, {1}));
  }
  return views;
}

TEST(Arena, MeasuringHandsOutNoMemory) {
  Arena arena;
  EXPECT_TRUE(arena.measuring());
  for (const View& v : use(arena)) EXPECT_EQ(v.data, nullptr) << v.describe();
  EXPECT_EQ(arena.peak(), 64u + 64u + 448u);  // the first scope: 60, 14 and 400 bytes, each rounded up
}

TEST(Arena, WhatWasMeasuredIsExactlyEnough) {
  Arena measured;
  use(measured);
  Result<Buffer> memory = make_cpu_device()->allocate(measured.peak());
  ASSERT_THAT(memory, Succeeds());
  Arena arena(*memory);
  EXPECT_FALSE(arena.measuring());
  for (int i = 0; i < 3; ++i) {  // the same again and again: scopes give everything back
    for (const View& v : use(arena)) {
      EXPECT_TRUE(v.dense());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(v.data) % 64, 0u) << v.describe();
      EXPECT_GE(v.data, memory->data());
      EXPECT_LE(static_cast<std::byte*>(v.data) + v.bytes(), static_cast<std::byte*>(memory->data()) + memory->bytes());
    }
    EXPECT_EQ(arena.peak(), measured.peak());
  }
}

TEST(Arena, LivingViewsDoNotOverlapAndScopesReuse) {
  Arena arena(make_cpu_device()->allocate(1024).value());
  const View outer = arena.alloc(DType::kF32, {5});
  void* first = nullptr;
  {
    const ArenaScope scope(arena);
    const View a = arena.alloc(DType::kF32, {5}), b = arena.alloc(DType::kF32, {17});
    EXPECT_EQ(static_cast<std::byte*>(a.data) - static_cast<std::byte*>(outer.data), 64);
    EXPECT_EQ(static_cast<std::byte*>(b.data) - static_cast<std::byte*>(a.data), 64);
    first = a.data;
  }
  const ArenaScope scope(arena);
  EXPECT_EQ(arena.alloc(DType::kF32, {17}).data, first);
  EXPECT_EQ(static_cast<std::byte*>(arena.alloc(DType::kF32, {1}).data) - static_cast<std::byte*>(first), 128);
}

TEST(Arena, NothingIsLaunchedWhileMeasuring) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  Arena arena;
  const Exec exec{.device = device.get(), .stream = stream.get(), .arena = &arena};
  bool ran = false;
  exec.launch([&] { ran = true; });
  EXPECT_FALSE(ran);
  Arena real(device->allocate(64).value());
  const Exec other{.device = device.get(), .stream = stream.get(), .arena = &real};
  other.launch([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(ArenaDeathTest, RunningOutIsABug) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Arena arena(make_cpu_device()->allocate(128).value());
  arena.alloc(DType::kF32, {16});
  arena.alloc(DType::kF32, {16});
  EXPECT_DEATH(arena.alloc(DType::kU8, {1}), "smaller than was measured");
}

}  // namespace
}  // namespace cadre
