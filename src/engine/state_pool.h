// StatePool: room for what layers keep of each sequence. Key-value pages are shared out by one block table for all
// layers; recurrent state lives in slots.
#pragma once

#include <vector>

#include "model/network.h"
#include "tensor/exec.h"

namespace cadre {

// Tokens in one page. Small enough that a short sequence wastes little, large enough that a block table stays short.
inline constexpr std::int64_t kPageSize = 16;

// What one sequence holds. Give it back with StatePool::release.
struct SequenceState {
  std::vector<std::int32_t> pages;  // in order of position
  std::int32_t slot = -1;           // recurrent state; -1 where nothing is held
  std::int64_t length = 0;          // tokens whose state is stored
};

class StatePool {
 public:
  // Bytes one page and one slot take on this rank.
  static std::int64_t page_bytes(const std::vector<StateSpec>& specs);
  static std::int64_t slot_bytes(const std::vector<StateSpec>& specs);

  static Result<StatePool> make(Device& device, const std::vector<StateSpec>& specs, std::int64_t pages,
                                std::int32_t slots);

  const std::vector<LayerState>& layers() const { return layers_; }
  std::int64_t pages() const { return pages_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_pages_.size()); }
  std::int32_t free_slots() const { return static_cast<std::int32_t>(free_slots_.size()); }

  // Makes room for `length` tokens in all; false, with nothing changed, where there is none.
  bool reserve(SequenceState& state, std::int64_t length);
  void release(SequenceState& state);
  // `to`, which must be empty, becomes a copy of `from`; false where there is no room. Enqueued.
  bool copy(const Exec& exec, const SequenceState& from, SequenceState& to);

 private:
  std::vector<Buffer> buffers_;
  std::vector<LayerState> layers_;
  std::int64_t pages_ = 0;
  std::vector<std::int32_t> free_pages_, free_slots_;
};

}  // namespace cadre
