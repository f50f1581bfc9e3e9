#include "engine/state_pool.h"

#include <cstring>
#include <numeric>

namespace cadre {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// First index first, so that a lone sequence gets pages in order.
std::vector<std::int32_t> descending(std::int64_t n, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.rbegin(), ids.rend(), first);
  return ids;
}

void copy_rows(const Exec& exec, const View& v, std::int64_t from, std::int64_t to) {
  if (!v.defined()) return;
  exec.launch(
      [v, from, to] { std::memcpy(v.at(to).data, v.at(from).data, static_cast<std::size_t>(v.at(from).bytes())); });
}

}  // namespace

std::int64_t StatePool::page_bytes(const std::vector<StateSpec>& specs) {
  std::int64_t bytes = 0;
  for (const StateSpec& s : specs) {
    if (s.kind == StateSpec::Kind::kPagedKv) bytes += 2 * kPageSize * s.kv_heads * s.head_dim * kFloat;
    if (s.kind == StateSpec::Kind::kLatentKv) bytes += kPageSize * s.latent * kFloat;
  }
  return bytes;
}

std::int64_t StatePool::slot_bytes(const std::vector<StateSpec>& specs) {
  std::int64_t bytes = 0;
  for (const StateSpec& s : specs) {
    if (s.kind == StateSpec::Kind::kRecurrent) {
      bytes += (s.channels * (s.width - 1) + s.heads * s.ssm_head_dim * s.state) * kFloat;
    }
  }
  return bytes;
}

Result<StatePool> StatePool::make(Device& device, const std::vector<StateSpec>& specs, std::int64_t pages,
                                  std::int32_t slots, std::int32_t snapshots) {
  StatePool pool;
  pool.holders_.resize(static_cast<std::size_t>(pages));
  pool.free_pages_ = descending(pages);
  pool.free_slots_ = descending(slots);
  pool.free_snapshots_ = descending(snapshots, slots);
  const std::int32_t all_slots = slots + snapshots;
  const auto allocate = [&](std::initializer_list<std::int64_t> dims) -> Result<View> {
    View v(nullptr, DType::kF32, dims);
    CADRE_ASSIGN(Buffer buffer, device.allocate(static_cast<std::size_t>(v.bytes())));
    v.data = buffer.data();
    pool.buffers_.push_back(std::move(buffer));
    return v;
  };
  for (const StateSpec& s : specs) {
    LayerState layer;
    if (s.kind == StateSpec::Kind::kPagedKv) {
      // Pages are seen as [pages, 2, page_size, kv_heads * head_dim]; ops split the last dimension by heads.
      CADRE_ASSIGN(layer.kv, allocate({pages, 2, kPageSize, s.kv_heads * s.head_dim}));
    } else if (s.kind == StateSpec::Kind::kLatentKv) {
      CADRE_ASSIGN(layer.kv, allocate({pages, kPageSize, s.latent}));
    } else {
      CADRE_ASSIGN(layer.conv, allocate({all_slots, s.channels, s.width - 1}));
      CADRE_ASSIGN(layer.ssm, allocate({all_slots, s.heads, s.ssm_head_dim, s.state}));
    }
    pool.layers_.push_back(layer);
  }
  return pool;
}

bool StatePool::reserve(SequenceState& state, std::int64_t length) {
  const std::int64_t want = (length + kPageSize - 1) / kPageSize;
  const std::int64_t missing = want - static_cast<std::int64_t>(state.pages.size());
  if (missing > free_pages() || (state.slot < 0 && free_slots_.empty())) return false;
  for (std::int64_t i = 0; i < missing; ++i) {
    state.pages.push_back(free_pages_.back());
    hold(free_pages_.back());
    free_pages_.pop_back();
  }
  if (state.slot < 0) {
    state.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  return true;
}

void StatePool::release(SequenceState& state) {
  for (auto page = state.pages.rbegin(); page != state.pages.rend(); ++page) drop(*page);
  if (state.slot >= 0) free_slots_.push_back(state.slot);
  state = SequenceState{};
}

void StatePool::drop(std::int32_t page) {
  int& holders = holders_[static_cast<std::size_t>(page)];
  CADRE_CHECK(holders > 0, "a page is dropped that nobody holds");
  if (--holders == 0) free_pages_.push_back(page);
}

std::int32_t StatePool::take_snapshot_slot() {
  if (free_snapshots_.empty()) return -1;
  const std::int32_t slot = free_snapshots_.back();
  free_snapshots_.pop_back();
  return slot;
}

void StatePool::copy_slot(const Exec& exec, std::int32_t from, std::int32_t to) const {
  for (const LayerState& layer : layers_) {
    copy_rows(exec, layer.conv, from, to);
    copy_rows(exec, layer.ssm, from, to);
  }
}

bool StatePool::copy(const Exec& exec, const SequenceState& from, SequenceState& to) {
  CADRE_CHECK(to.pages.empty() && to.slot < 0, "the target of a copy must be empty");
  if (!reserve(to, from.length)) return false;
  for (const LayerState& layer : layers_) {
    for (std::size_t i = 0; i < to.pages.size(); ++i) copy_rows(exec, layer.kv, from.pages[i], to.pages[i]);
  }
  copy_slot(exec, from.slot, to.slot);
  to.length = from.length;
  return true;
}

}  // namespace cadre
