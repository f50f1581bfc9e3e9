#include "tensor/test_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace cadre {
namespace {

// One region of address space, readable only while somebody is inside. Several streams may be.
class Region {
 public:
  explicit Region(std::size_t capacity)
      : bytes_(capacity),
        base_(::mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (ok()) free_.emplace(0, capacity);
  }
  ~Region() {
    if (ok()) ::munmap(base_, bytes_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool ok() const { return base_ != MAP_FAILED; }

  void enter() {
    std::lock_guard lock(mutex_);
    if (inside_++ == 0) CADRE_CHECK(::mprotect(base_, bytes_, PROT_READ | PROT_WRITE) == 0, "mprotect");
  }
  void leave() {
    std::lock_guard lock(mutex_);
    if (--inside_ == 0) CADRE_CHECK(::mprotect(base_, bytes_, PROT_NONE) == 0, "mprotect");
  }

  // First fit; null where no hole is large enough.
  void* take(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      const auto [at, size] = *it;
      free_.erase(it);
      if (size > bytes) free_.emplace(at + bytes, size - bytes);
      return static_cast<std::byte*>(base_) + at;
    }
    return nullptr;
  }
  void give(void* memory, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    std::size_t at = static_cast<std::size_t>(static_cast<std::byte*>(memory) - static_cast<std::byte*>(base_));
    auto next = free_.lower_bound(at);
    if (next != free_.end() && at + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    }
    free_.emplace(at, bytes);
  }

 private:
  std::size_t bytes_;
  void* base_;
  std::mutex mutex_;
  int inside_ = 0;
  std::map<std::size_t, std::size_t> free_;  // offset -> size
};

class DeferredStream final : public Stream {
 public:
  explicit DeferredStream(std::shared_ptr<Region> region) : region_(std::move(region)), thread_([this] { work(); }) {}
  ~DeferredStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  DeferredStream(const DeferredStream&) = delete;
  DeferredStream& operator=(const DeferredStream&) = delete;

  bool immediate() const override { return false; }
  void submit(std::function<void()> work) override {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> op = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      region_->enter();
      op();
      region_->leave();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::shared_ptr<Region> region_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

class TestDevice final : public Device {
 public:
  explicit TestDevice(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  const char* name() const override { return "test"; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<DeferredStream>(region_); }

  Result<Buffer> allocate(std::size_t bytes) override {
    // Rounding up must not wrap round to a small block.
    const std::size_t rounded = bytes > SIZE_MAX - 63 ? bytes : std::max<std::size_t>((bytes + 63) / 64 * 64, 64);
    void* memory = region_->take(rounded);
    if (memory == nullptr) return error(Code::kOutOfMemory, "the test device has no ", bytes, " bytes left");
    region_->enter();
    std::memset(memory, 0, rounded);
    region_->leave();
    return Buffer(std::shared_ptr<void>(memory, [region = region_, rounded](void* p) { region->give(p, rounded); }),
                  bytes);
  }

  Result<std::pair<View, Buffer>> import(const View& host, std::shared_ptr<const void>) override {
    CADRE_ASSIGN(Buffer buffer, allocate(static_cast<std::size_t>(host.bytes())));
    View v = host;
    std::int64_t step = 1;
    for (int i = v.rank - 1; i >= 0; --i) {
      v.stride[static_cast<std::size_t>(i)] = step;
      step *= v.dim(i);
    }
    v.data = buffer.data();
    region_->enter();
    copy_dense(host, v.data);
    region_->leave();
    return std::pair(v, std::move(buffer));
  }

  void upload(Stream& stream, void* dst, const void* src, std::size_t bytes) override {
    if (bytes == 0) return;
    std::vector<std::byte> copy(static_cast<const std::byte*>(src), static_cast<const std::byte*>(src) + bytes);
    stream.submit([dst, copy = std::move(copy)] { std::memcpy(dst, copy.data(), copy.size()); });
  }
  void to_host(Stream& stream, void* dst, const void* src, std::size_t bytes) override {
    stream.wait();
    if (bytes == 0) return;
    region_->enter();
    std::memcpy(dst, src, bytes);
    region_->leave();
  }

 private:
  std::shared_ptr<Region> region_;
};

}  // namespace

Result<std::shared_ptr<Device>> make_test_device(std::size_t capacity) {
  auto region = std::make_shared<Region>(capacity);
  if (!region->ok()) return error(Code::kOutOfMemory, "cannot reserve ", capacity, " bytes for the test device");
  return std::shared_ptr<Device>(std::make_shared<TestDevice>(std::move(region)));
}

}  // namespace cadre
