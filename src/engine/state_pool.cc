#include "engine/state_pool.h"

#include <cstring>
#include <numeric>

namespace cadre {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// First index first, so that a lone sequence gets pages in order.
std::vector<std::int32_t> descending(std::int64_t n) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  std::iota(ids.rbegin(), ids.rend(), 0);
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
                                  std::int32_t slots) {
  StatePool pool;
  pool.pages_ = pages;
  pool.free_pages_ = descending(pages);
  pool.free_slots_ = descending(slots);
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
    } else {
      CADRE_ASSIGN(layer.conv, allocate({slots, s.channels, s.width - 1}));
      CADRE_ASSIGN(layer.ssm, allocate({slots, s.heads, s.ssm_head_dim, s.state}));
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
    free_pages_.pop_back();
  }
  if (state.slot < 0) {
    state.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  return true;
}

void StatePool::release(SequenceState& state) {
  free_pages_.insert(free_pages_.end(), state.pages.rbegin(), state.pages.rend());
  if (state.slot >= 0) free_slots_.push_back(state.slot);
  state = SequenceState{};
}

bool StatePool::copy(const Exec& exec, const SequenceState& from, SequenceState& to) {
  CADRE_CHECK(to.pages.empty() && to.slot < 0, "the target of a copy must be empty");
  if (!reserve(to, from.length)) return false;
  for (const LayerState& layer : layers_) {
    for (std::size_t i = 0; i < to.pages.size(); ++i) copy_rows(exec, layer.kv, from.pages[i], to.pages[i]);
    copy_rows(exec, layer.conv, from.slot, to.slot);
    copy_rows(exec, layer.ssm, from.slot, to.slot);
  }
  to.length = from.length;
  return true;
}

}  // namespace cadre
