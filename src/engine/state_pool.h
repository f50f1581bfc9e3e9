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
  std::vector<std::int32_t> pages;  // in order of position; full ones may be shared with others
  std::int32_t slot = -1;           // recurrent state; -1 where nothing is held
  std::int64_t length = 0;          // tokens whose state is stored
};

class StatePool {
 public:
  // Bytes one page and one slot take on this rank.
  static std::int64_t page_bytes(const std::vector<StateSpec>& specs);
  static std::int64_t slot_bytes(const std::vector<StateSpec>& specs);

  // `slots` for sequences and `snapshots` of recurrent state beside them.
  static Result<StatePool> make(Device& device, const std::vector<StateSpec>& specs, std::int64_t pages,
                                std::int32_t slots, std::int32_t snapshots = 0);

  const std::vector<LayerState>& layers() const { return layers_; }
  std::int64_t pages() const { return static_cast<std::int64_t>(holders_.size()); }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_pages_.size()); }
  std::int32_t free_slots() const { return static_cast<std::int32_t>(free_slots_.size()); }

  // Makes room for `length` tokens in all; false, with nothing changed, where there is none.
  bool reserve(SequenceState& state, std::int64_t length);
  void release(SequenceState& state);
  // `to`, which must be empty, becomes a copy of `from`; false where there is no room. Enqueued.
  bool copy(const Exec& exec, const SequenceState& from, SequenceState& to);

  // Pages are free again when their last holder drops them.
  void hold(std::int32_t page) { ++holders_[static_cast<std::size_t>(page)]; }
  void drop(std::int32_t page);
  int holders(std::int32_t page) const { return holders_[static_cast<std::size_t>(page)]; }

  // Room for a copy of recurrent state; -1 where there is none.
  std::int32_t take_snapshot_slot();
  void give_snapshot_slot(std::int32_t slot) { free_snapshots_.push_back(slot); }
  void copy_slot(const Exec& exec, std::int32_t from, std::int32_t to) const;  // enqueued

 private:
  std::vector<Buffer> buffers_;
  std::vector<LayerState> layers_;
  std::vector<int> holders_;  // of each page
  std::vector<std::int32_t> free_pages_, free_slots_, free_snapshots_;
};

}  // namespace cadre
