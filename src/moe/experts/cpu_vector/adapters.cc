#include "moe/experts/cpu_vector/adapters.h"

#include <map>
#include <tuple>

#include "moe/experts/cpu_vector/kernels.h"

namespace cadre::cpu_vector {

Result<PackedAdapters> PackedAdapters::make(Device& device, Stream& stream, int slots, std::int64_t experts,
                                            std::int64_t width, std::int64_t intermediate) {
  PackedAdapters adapters;
  adapters.experts_ = experts;
  adapters.in_[kGatePart] = adapters.in_[kUpPart] = width;
  adapters.in_[kDownPart] = intermediate;
  adapters.packed_.resize(static_cast<std::size_t>(slots));
  const std::vector<PackedTerm> empty(static_cast<std::size_t>(slots) * adapters.row());
  CADRE_ASSIGN(adapters.table_, device.allocate(empty.size() * sizeof(PackedTerm)));
  device.upload(stream, adapters.table_.data(), empty.data(), empty.size() * sizeof(PackedTerm));
  return adapters;
}

void PackedAdapters::write(Device& device, Stream& stream, int slot, const std::vector<PackedTerm>& terms) {
  const std::size_t bytes = row() * sizeof(PackedTerm);
  device.upload(stream, static_cast<std::byte*>(table_.data()) + static_cast<std::size_t>(slot) * bytes, terms.data(),
                bytes);
  stream.wait();  // the old copies may be freed now: nothing enqueued before reads them
}

Status PackedAdapters::set(Device& device, Stream& stream, int slot, const std::vector<LowRank>& terms) {
  CADRE_CHECK(slot >= 0 && slot < slots() && terms.size() == row(), "no such slot");
  using Key = std::tuple<const void*, std::array<std::int64_t, View::kMaxRank>,
                         std::array<std::int64_t, View::kMaxRank>, int, std::int64_t>;
  std::map<Key, const std::byte*> done;
  std::vector<Buffer> buffers;
  // Where this fails, copies may still be on their way into buffers that go.
  struct Wait {
    Stream& stream;
    ~Wait() { stream.wait(); }
  } const wait{stream};
  const auto put = [&](const View& v, int block, std::int64_t k_padded) -> Result<const std::byte*> {
    const Key key{v.data, v.shape, v.stride, block, k_padded};
    if (const auto it = done.find(key); it != done.end()) return it->second;
    const PackedType type = packed_type(v.dtype);
    std::vector<std::byte> host(static_cast<std::size_t>(packed_bytes(type, v.dim(0), block, k_padded)));
    pack(v, type, block, k_padded, host.data());
    CADRE_ASSIGN(Buffer buffer, device.allocate(host.size()));
    device.upload(stream, buffer.data(), host.data(), host.size());
    buffers.push_back(buffer);
    return done[key] = static_cast<const std::byte*>(buffer.data());
  };
  std::vector<PackedTerm> entries(row());
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const LowRank& term = terms[i];
    if (term.rank() == 0) continue;
    PackedTerm& entry = entries[i];
    entry.rank = term.rank();
    entry.scale = term.scale;
    entry.a_type = packed_type(term.a.dtype);
    entry.b_type = packed_type(term.b.dtype);
    const std::size_t part = i / static_cast<std::size_t>(experts_);
    CADRE_ASSIGN(entry.a, put(term.a, kRankBlock, in_[part]));
    CADRE_ASSIGN(entry.b, put(term.b, kBlock, round_up(term.rank(), 2)));
  }
  write(device, stream, slot, entries);
  packed_[static_cast<std::size_t>(slot)] = std::move(buffers);
  return {};
}

void PackedAdapters::clear(Device& device, Stream& stream, int slot) {
  write(device, stream, slot, std::vector<PackedTerm>(row()));
  packed_[static_cast<std::size_t>(slot)].clear();
}

}  // namespace cadre::cpu_vector
