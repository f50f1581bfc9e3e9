// Exec: everything a call needs to enqueue work: device, stream, scratch memory, threads, the other ranks.
#pragma once

#include <utility>

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace cadre {

class Communicator;

// Scratch memory of one stream, handed out by moving a pointer. Reuse is safe because a stream runs in order. In
// measuring mode nothing is handed out: views have no memory and only the peak is counted.
class Arena {
 public:
  Arena() = default;  // measures
  explicit Arena(Buffer memory) : memory_(std::move(memory)), measuring_(false) {}

  // A dense view, aligned to 64 bytes. Running out is a bug: the size was measured with the same calls.
  View alloc(DType dtype, std::initializer_list<std::int64_t> dims);
  std::size_t peak() const { return peak_; }
  bool measuring() const { return measuring_; }

 private:
  friend class ArenaScope;
  Buffer memory_;
  bool measuring_ = true;
  std::size_t used_ = 0, peak_ = 0;
};

// Gives back, at its end, what was allocated since its beginning.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
  ~ArenaScope() { arena_.used_ = mark_; }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

// Borrowed parts; copied freely. Used by one host thread at a time.
struct Exec {
  Device* device = nullptr;
  Stream* stream = nullptr;
  Arena* arena = nullptr;
  ThreadPool* threads = nullptr;
  Communicator* ranks = nullptr;

  // Runs `work` in stream order. The closure must hold copies of the views it uses. Where the arena only measures,
  // nothing runs.
  template <class F>
  void launch(F&& work) const {
    if (arena->measuring()) return;
    if (stream->immediate()) {
      work();
    } else {
      stream->submit(std::function<void()>(std::forward<F>(work)));
    }
  }
};

}  // namespace cadre
