// The device that the goldens' second pass relies on: that it does catch what a GPU would not forgive.
#include "tensor/test_device.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "support/status_matchers.h"

namespace cadre {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

std::shared_ptr<Device> device_of(std::size_t capacity) { return make_test_device(capacity).value(); }

template <class T>
std::vector<T> read(Device& device, Stream& stream, const void* from, std::size_t count) {
  std::vector<T> out(count);
  device.to_host(stream, out.data(), from, count * sizeof(T));
  return out;
}

// The statement ends the process with a memory fault, which sanitizers report in their own way.
bool faulted(int status) {
  return kSanitized ? !testing::ExitedWithCode(0)(status) : testing::KilledBySignal(SIGSEGV)(status);
}
constexpr const char* kReport = kSanitized ? "SEGV" : "";
#define EXPECT_FAULT(statement) EXPECT_EXIT(statement, faulted, kReport)

TEST(TestDeviceDeathTest, MemoryIsOutOfReachOutsideOps) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto device = device_of(1 << 20);
  const auto stream = device->make_stream();
  const Buffer buffer = device->allocate(4096).value();
  auto* const there = static_cast<volatile std::uint8_t*>(buffer.data());
  EXPECT_FAULT((void)there[0]);
  EXPECT_FAULT(there[4095] = 1);
  // Also after an op, an upload and a copy to the host have opened it.
  stream->submit([there] { there[1] = 5; });
  stream->wait();
  EXPECT_FAULT((void)there[1]);
  EXPECT_EQ(read<std::uint8_t>(*device, *stream, buffer.data(), 2)[1], 5);
  EXPECT_FAULT((void)there[1]);
  const std::uint8_t one = 1;
  device->upload(*stream, buffer.data(), &one, 1);
  stream->wait();
  EXPECT_FAULT(there[0] = 1);
}

TEST(TestDeviceDeathTest, ImportedMemoryIsOutOfReachToo) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto device = device_of(1 << 20);
  const auto host = std::make_shared<std::vector<float>>(16, 2.0f);
  auto imported = device->import(View(host->data(), DType::kF32, {16}), host);
  ASSERT_THAT(imported, Succeeds());
  const volatile float* there = ptr<float>(imported->first);
  EXPECT_FAULT((void)there[0]);
}

TEST(TestDevice, MemoryIsZeroAndAligned) {
  const auto device = device_of(1 << 20);
  const auto stream = device->make_stream();
  for (int again = 0; again < 2; ++again) {
    Result<Buffer> buffer = device->allocate(1001);
    ASSERT_THAT(buffer, Succeeds());
    EXPECT_EQ(buffer->bytes(), 1001u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_THAT(read<std::uint8_t>(*device, *stream, buffer->data(), 1001), testing::Each(0));
    stream->submit([data = buffer->data()] { std::memset(data, 0xcd, 1001); });
    stream->wait();
  }
}

TEST(TestDevice, OpsRunLaterInOrderOnAnotherThread) {
  const auto device = device_of(1 << 20);
  const auto stream = device->make_stream();
  EXPECT_FALSE(stream->immediate());
  std::promise<void> open;
  std::vector<int> order;
  std::vector<std::thread::id> where;
  stream->submit([gate = open.get_future().share()] { gate.wait(); });
  for (int i = 0; i < 100; ++i) {
    stream->submit([&, i] {
      order.push_back(i);
      where.push_back(std::this_thread::get_id());
    });
  }
  open.set_value();  // had `submit` waited for its work, this would never be reached
  stream->wait();
  std::vector<int> want(100);
  std::iota(want.begin(), want.end(), 0);
  EXPECT_EQ(order, want);
  for (const std::thread::id id : where) {
    EXPECT_NE(id, std::this_thread::get_id());
    EXPECT_EQ(id, where[0]);
  }
}

TEST(TestDevice, StreamsDoNotWaitForEachOther) {
  const auto device = device_of(1 << 20);
  const auto first = device->make_stream(), second = device->make_stream();
  std::promise<void> open;
  first->submit([gate = open.get_future().share()] { gate.wait(); });
  second->submit([&] { open.set_value(); });
  first->wait();
  second->wait();
}

TEST(TestDevice, ADestroyedStreamHasRunItsWork) {
  const auto device = device_of(1 << 20);
  std::atomic<int> ran = 0;
  {
    const auto stream = device->make_stream();
    for (int i = 0; i < 10; ++i) {
      stream->submit([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++ran;
      });
    }
  }
  EXPECT_EQ(ran.load(), 10);
}

TEST(TestDevice, UploadsTakeTheirOwnCopyAndToHostWaits) {
  const auto device = device_of(1 << 20);
  const auto stream = device->make_stream();
  const Buffer buffer = device->allocate(16).value();
  std::promise<void> open;
  stream->submit([gate = open.get_future().share()] { gate.wait(); });
  std::vector<std::int32_t> values = {1, 2, 3, 4};
  device->upload(*stream, buffer.data(), values.data(), 16);
  values.assign(4, -1);  // may be reused at once
  stream->submit([there = static_cast<std::int32_t*>(buffer.data())] { there[3] *= 10; });
  open.set_value();
  EXPECT_THAT(read<std::int32_t>(*device, *stream, buffer.data(), 4), ElementsAre(1, 2, 3, 40));
  device->upload(*stream, buffer.data(), nullptr, 0);
  device->to_host(*stream, nullptr, buffer.data(), 0);
}

TEST(TestDevice, ImportCopiesStridedViews) {
  const auto device = device_of(1 << 20);
  const auto stream = device->make_stream();
  auto host = std::make_shared<std::vector<float>>(24);
  std::iota(host->begin(), host->end(), 0.0f);
  const View all(host->data(), DType::kF32, {4, 6});

  auto columns = device->import(all.slice(1, 2, 4), host);
  auto turned = device->import(all.transposed().slice(0, 0, 2), host);
  auto empty = device->import(all.slice(1, 2, 4).slice(0, 1, 1), host);
  ASSERT_THAT(columns, Succeeds());
  ASSERT_THAT(turned, Succeeds());
  ASSERT_THAT(empty, Succeeds());
  host->assign(24, -1.0f);  // copies do not look back

  EXPECT_NE(columns->first.data, host->data());
  EXPECT_TRUE(columns->first.dense());
  EXPECT_EQ(columns->first.describe(), "float32 [4, 2]");
  EXPECT_THAT(read<float>(*device, *stream, columns->first.data, 8), ElementsAre(2, 3, 8, 9, 14, 15, 20, 21));
  EXPECT_EQ(turned->first.describe(), "float32 [2, 4]");
  EXPECT_THAT(read<float>(*device, *stream, turned->first.data, 8), ElementsAre(0, 6, 12, 18, 1, 7, 13, 19));
  EXPECT_EQ(empty->first.describe(), "float32 [0, 2]");
}

TEST(TestDevice, ExhaustedIsOutOfMemory) {
  const auto device = device_of(1 << 16);
  Result<Buffer> most = device->allocate((1 << 16) - 4096);
  ASSERT_THAT(most, Succeeds());
  EXPECT_THAT(device->allocate(4097), FailsWith(Code::kOutOfMemory, "4097"));
  const auto host = std::make_shared<std::vector<float>>(4096);
  EXPECT_THAT(device->import(View(host->data(), DType::kF32, {4096}), host), FailsWith(Code::kOutOfMemory, "16384"));
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 62, SIZE_MAX - 63}) {
    EXPECT_THAT(device->allocate(bytes), FailsWith(Code::kOutOfMemory, "bytes left")) << bytes;
  }
  Result<Buffer> rest = device->allocate(4096);
  ASSERT_THAT(rest, Succeeds());
  EXPECT_THAT(device->allocate(1), FailsWith(Code::kOutOfMemory, "bytes left"));
  EXPECT_THAT(device->allocate(0), FailsWith(Code::kOutOfMemory, "bytes left"));
}

TEST(TestDevice, MoreThanTheAddressSpaceIsRefused) {
  EXPECT_THAT(make_test_device(SIZE_MAX / 2), FailsWith(Code::kOutOfMemory, "cannot reserve"));
}

TEST(TestDevice, FreedMemoryIsReused) {
  const auto device = device_of(1 << 16);
  Buffer a = device->allocate(1 << 14).value(), b = device->allocate(1 << 14).value();
  Buffer c = device->allocate(1 << 14).value(), d = device->allocate(1 << 14).value();
  void* const second = b.data();
  b = {};
  b = device->allocate(1 << 14).value();
  EXPECT_EQ(b.data(), second);
  // Neighbours grow together again, in whatever order they go: the whole is one hole in the end.
  EXPECT_FALSE(device->allocate(1).ok());
  a = {};
  c = {};
  EXPECT_FALSE(device->allocate(3 << 14).ok());
  b = {};
  {
    Result<Buffer> three = device->allocate(3 << 14);
    EXPECT_THAT(three, Succeeds());
  }
  d = {};
  EXPECT_THAT(device->allocate(1 << 16), Succeeds());
}

TEST(TestDevice, MemoryOutlivesTheDevice) {
  auto device = device_of(1 << 16);
  auto stream = device->make_stream();
  const Buffer buffer = device->allocate(64).value();
  device.reset();
  std::uint8_t got = 0;
  stream->submit([&, there = static_cast<std::uint8_t*>(buffer.data())] { got = ++there[0]; });
  stream->wait();
  EXPECT_EQ(got, 1);
}

TEST(TestDevice, ManyThreadsAllocate) {
  const auto device = device_of(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = device->make_stream();
      for (int i = 0; i < 50; ++i) {
        Result<Buffer> buffer = device->allocate(static_cast<std::size_t>(64 * (1 + (i * 7 + t) % 50)));
        ASSERT_THAT(buffer, Succeeds());
        std::vector<std::uint8_t> want(buffer->bytes(), static_cast<std::uint8_t>(t + 1));
        device->upload(*stream, buffer->data(), want.data(), want.size());
        EXPECT_THAT(read<std::uint8_t>(*device, *stream, buffer->data(), want.size()), ElementsAreArray(want));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(device->allocate(1 << 20), Succeeds());  // all of it came back
}

}  // namespace
}  // namespace cadre
