// Device, Stream, Buffer: where tensors live and in what order work on them happens.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tensor/view.h"

namespace cadre {

// Work in order. `submit` may return before the work has run; `wait` returns when all of it has.
class Stream {
 public:
  virtual ~Stream() = default;
  // True where work runs inside the call: Exec::launch then skips the closure's allocation.
  virtual bool immediate() const = 0;
  virtual void submit(std::function<void()> work) = 0;
  virtual void wait() = 0;
};

// Memory of a device, freed with the object.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<void> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0;
};

// Memory and streams of one device. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // Zeroed memory, aligned to 64 bytes. kOutOfMemory where there is none.
  virtual Result<Buffer> allocate(std::size_t bytes) = 0;
  // Host memory that ops of this device may read in place for as long as `owner` lives; where the device cannot reach
  // it, a copy. The view keeps its strides where it is lent and becomes dense where it is copied.
  virtual Result<std::pair<View, Buffer>> import(const View& host, std::shared_ptr<const void> owner) = 0;
  // Enqueues a copy of `bytes` from host memory, which may be reused at once, to device memory.
  virtual void upload(Stream& stream, void* dst, const void* src, std::size_t bytes) = 0;
  // Waits for the stream, then copies dense device memory to the host. The only call that waits.
  virtual void to_host(Stream& stream, void* dst, const void* src, std::size_t bytes) = 0;
};

// The machine's own memory and cores: streams run work at once, mapped files are lent in place.
std::shared_ptr<Device> make_cpu_device();

// Copies any strided view into dense host memory (for import and packing; host memory only).
void copy_dense(const View& src, void* dst);

}  // namespace cadre
