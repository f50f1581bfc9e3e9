#include "lora/table.h"

#include <algorithm>
#include <tuple>

namespace cadre {
namespace {

// Two views with these equal are the same numbers.
using ViewKey =
    std::tuple<const void*, std::array<std::int64_t, View::kMaxRank>, std::array<std::int64_t, View::kMaxRank>>;

}  // namespace

Result<LoraTable> LoraTable::make(Device& device, Stream& stream, int slots, int width) {
  LoraTable table;
  table.slots_ = slots;
  table.width_ = width;
  table.packed_.resize(static_cast<std::size_t>(slots));
  const std::size_t count = static_cast<std::size_t>(slots) * static_cast<std::size_t>(width);
  CADRE_ASSIGN(table.memory_, device.allocate(count * sizeof(LoraEntry)));
  const std::vector<LoraEntry> empty(count);
  device.upload(stream, table.memory_.data(), empty.data(), count * sizeof(LoraEntry));
  return table;
}

Status LoraTable::set(Device& device, Stream& stream, int slot, const std::vector<LowRank>& terms,
                      const View& replacement) {
  CADRE_CHECK(slot >= 0 && slot < slots_ && terms.size() <= static_cast<std::size_t>(width_), "no such slot");
  std::vector<LoraEntry> entries(static_cast<std::size_t>(width_));
  std::vector<Buffer> buffers;
  // Where this fails, copies may still be on their way into buffers that go.
  struct Wait {
    Stream& stream;
    ~Wait() { stream.wait(); }
  } const wait{stream};
  std::map<ViewKey, const void*> done;
  const auto pack = [&](const View& view) -> Result<const void*> {
    const ViewKey key{view.data, view.shape, view.stride};
    if (const auto it = done.find(key); it != done.end()) return it->second;
    std::vector<std::byte> host(static_cast<std::size_t>(view.bytes()));
    copy_dense(view, host.data());
    CADRE_ASSIGN(Buffer buffer, device.allocate(host.size()));
    device.upload(stream, buffer.data(), host.data(), host.size());
    buffers.push_back(buffer);
    done.emplace(key, buffer.data());
    return static_cast<const void*>(buffer.data());
  };
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].rank() == 0) continue;
    entries[i].rank = terms[i].rank();
    entries[i].scale = terms[i].scale;
    entries[i].a_dtype = terms[i].a.dtype;
    entries[i].b_dtype = terms[i].b.dtype;
    CADRE_ASSIGN(entries[i].a, pack(terms[i].a));
    CADRE_ASSIGN(entries[i].b, pack(terms[i].b));
  }
  if (replacement.defined()) {
    entries[0].replacement_dtype = replacement.dtype;
    CADRE_ASSIGN(entries[0].replacement, pack(replacement));
  }
  const std::size_t row = static_cast<std::size_t>(width_) * sizeof(LoraEntry);
  device.upload(stream, static_cast<std::byte*>(memory_.data()) + static_cast<std::size_t>(slot) * row, entries.data(),
                row);
  stream.wait();  // the old copies may be freed now: nothing enqueued before reads them
  packed_[static_cast<std::size_t>(slot)] = std::move(buffers);
  return {};
}

void LoraTable::clear(Device& device, Stream& stream, int slot) {
  const std::vector<LoraEntry> empty(static_cast<std::size_t>(width_));
  const std::size_t row = empty.size() * sizeof(LoraEntry);
  device.upload(stream, static_cast<std::byte*>(memory_.data()) + static_cast<std::size_t>(slot) * row, empty.data(),
                row);
  stream.wait();
  packed_[static_cast<std::size_t>(slot)].clear();
}

bool LoraTable::used() const {
  return std::any_of(packed_.begin(), packed_.end(), [](const auto& slot) { return !slot.empty(); });
}

int LayerLora::max_rank() const {
  int rank = 0;
  for (const auto* terms : {&gate, &up, &down}) {
    for (const LowRank& term : *terms) rank = std::max(rank, term.rank());
  }
  return rank;
}

bool LayerLora::shared_outer() const {
  for (const auto* terms : {&gate, &up, &down}) {
    const LowRank* first = nullptr;
    for (const LowRank& term : *terms) {
      if (term.rank() == 0) continue;
      if (first != nullptr && (first->a.data == term.a.data || first->b.data == term.b.data)) return true;
      if (first == nullptr) first = &term;
    }
  }
  return false;
}

}  // namespace cadre
