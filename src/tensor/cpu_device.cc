#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tensor/device.h"

namespace cadre {
namespace {

class ImmediateStream final : public Stream {
 public:
  bool immediate() const override { return true; }
  void submit(std::function<void()> work) override { work(); }
  void wait() override {}
};

constexpr std::size_t kMapped = std::size_t{1} << 20;

class CpuDevice final : public Device {
 public:
  const char* name() const override { return "cpu"; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }

  Result<Buffer> allocate(std::size_t bytes) override {
    // Rounding up must not wrap round to a small block.
    if (bytes > SIZE_MAX - 63) return error(Code::kOutOfMemory, "cannot allocate ", bytes, " bytes");
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    // Large blocks come as untouched zero pages: a cache planned for many sequences costs what is used of it.
    if (rounded >= kMapped) {
      void* mapped =
          ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) return error(Code::kOutOfMemory, "cannot allocate ", bytes, " bytes");
      return Buffer(std::shared_ptr<void>(mapped, [rounded](void* p) { ::munmap(p, rounded); }), bytes);
    }
    void* memory = rounded == 0 ? nullptr : std::aligned_alloc(64, rounded);
    if (rounded != 0 && memory == nullptr) return error(Code::kOutOfMemory, "cannot allocate ", bytes, " bytes");
    if (rounded != 0) std::memset(memory, 0, rounded);
    return Buffer(std::shared_ptr<void>(memory, [](void* p) { std::free(p); }), bytes);
  }

  Result<std::pair<View, Buffer>> import(const View& host, std::shared_ptr<const void> owner) override {
    return std::pair(host, Buffer(std::const_pointer_cast<void>(std::move(owner)), 0));
  }

  void upload(Stream&, void* dst, const void* src, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
  }
  void to_host(Stream&, void* dst, const void* src, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
  }
};

}  // namespace

std::shared_ptr<Device> make_cpu_device() { return std::make_shared<CpuDevice>(); }

void copy_dense(const View& src, void* dst) {
  const std::size_t size = static_cast<std::size_t>(dtype_bits(src.dtype)) / 8;
  if (src.dense()) {
    if (src.elements() != 0) std::memcpy(dst, src.data, static_cast<std::size_t>(src.elements()) * size);
    return;
  }
  if (src.rank == 1) {
    for (std::int64_t i = 0; i < src.dim(0); ++i) {
      std::memcpy(static_cast<std::byte*>(dst) + static_cast<std::size_t>(i) * size,
                  static_cast<const std::byte*>(src.data) + static_cast<std::size_t>(i * src.step(0)) * size, size);
    }
    return;
  }
  const std::size_t part = static_cast<std::size_t>(src.elements() / src.dim(0)) * size;
  for (std::int64_t i = 0; i < src.dim(0); ++i) {
    copy_dense(src.at(i), static_cast<std::byte*>(dst) + static_cast<std::size_t>(i) * part);
  }
}

}  // namespace cadre
