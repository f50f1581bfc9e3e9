#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "support/status_matchers.h"
#include "tensor/device.h"

namespace cadre {
namespace {

TEST(CpuDevice, MemoryIsZeroAndAligned) {
  const auto device = make_cpu_device();
  // Both ways of getting memory, and what was used before.
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, std::size_t{5000},
                                  (std::size_t{1} << 20) - 64, std::size_t{1} << 20, (std::size_t{3} << 20) + 1}) {
    for (int again = 0; again < 2; ++again) {
      Result<Buffer> buffer = device->allocate(bytes);
      ASSERT_THAT(buffer, Succeeds());
      EXPECT_EQ(buffer->bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u) << bytes;
      auto* const data = static_cast<unsigned char*>(buffer->data());
      EXPECT_EQ(data[0], 0);
      EXPECT_EQ(std::memcmp(data, data + 1, bytes - 1), 0) << bytes;
      std::memset(data, 0xab, bytes);
    }
  }
}

TEST(CpuDevice, NothingNeedsNoMemory) {
  Result<Buffer> buffer = make_cpu_device()->allocate(0);
  ASSERT_THAT(buffer, Succeeds());
  EXPECT_EQ(buffer->bytes(), 0u);
}

// A plan may ask for a cache that is never filled.
TEST(CpuDevice, UntouchedMemoryCostsNothing) {
  Result<Buffer> buffer = make_cpu_device()->allocate(std::size_t{1} << 38);
  ASSERT_THAT(buffer, Succeeds());
  auto* const data = static_cast<unsigned char*>(buffer->data());
  data[(std::size_t{1} << 38) - 1] = 1;
  EXPECT_EQ(data[std::size_t{1} << 37], 0);
}

TEST(CpuDevice, WhatIsNotThereIsOutOfMemory) {
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX - 63, SIZE_MAX - 62, SIZE_MAX}) {
    EXPECT_THAT(make_cpu_device()->allocate(bytes), FailsWith(Code::kOutOfMemory, std::to_string(bytes))) << bytes;
  }
}

TEST(CpuDevice, MemoryOutlivesTheDevice) {
  auto device = make_cpu_device();
  Buffer buffer = device->allocate(256).value();
  const Buffer same = buffer;
  device.reset();
  buffer = {};
  std::memset(same.data(), 1, same.bytes());
}

TEST(CpuDevice, ImportLendsInPlaceAndKeepsTheOwner) {
  auto owner = std::make_shared<std::vector<float>>(12, 1.0f);
  const std::weak_ptr<std::vector<float>> watched = owner;
  const View host = View(owner->data(), DType::kF32, {3, 4}).slice(1, 1, 3);
  auto imported = make_cpu_device()->import(host, owner);
  ASSERT_THAT(imported, Succeeds());
  EXPECT_EQ(imported->first.data, host.data);
  EXPECT_EQ(imported->first.stride, host.stride);
  owner.reset();
  EXPECT_FALSE(watched.expired());
  imported = std::pair(View(), Buffer());
  EXPECT_TRUE(watched.expired());
}

TEST(CpuDevice, WorkRunsAtOnce) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  EXPECT_TRUE(stream->immediate());
  int ran = 0;
  stream->submit([&] { ++ran; });
  EXPECT_EQ(ran, 1);
  stream->wait();

  const Buffer buffer = device->allocate(8).value();
  const std::vector<std::uint8_t> want = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::uint8_t> got(8);
  device->upload(*stream, buffer.data(), want.data(), 8);
  device->to_host(*stream, got.data(), buffer.data(), 8);
  EXPECT_EQ(got, want);
  device->upload(*stream, nullptr, nullptr, 0);
  device->to_host(*stream, nullptr, nullptr, 0);
}

}  // namespace
}  // namespace cadre
