#include <barrier>
#include <cstring>

#include "dist/communicator.h"

namespace cadre {
namespace {

// What the ranks of a group share. Between the barriers of one call every rank is inside its op, so the others' memory
// may be read even on a device that hides it outside ops.
struct Group {
  explicit Group(int n) : size(n), barrier(n), in(static_cast<std::size_t>(n)), offsets(static_cast<std::size_t>(n)) {}
  int size;
  std::barrier<> barrier;
  std::vector<const float*> in;                    // what each rank offers
  std::vector<std::vector<std::int64_t>> offsets;  // all_to_all_v: first row for each receiver
  std::vector<float> sum;
};

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Of nothing, either end may be null.
void copy(float* dst, const float* src, std::int64_t count) {
  if (count != 0) std::memcpy(dst, src, static_cast<std::size_t>(count) * sizeof(float));
}

class InProcess final : public Communicator {
 public:
  InProcess(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  void all_reduce(const Exec& exec, View x) override {
    exec.launch([g = group_, r = rank_, x] {
      const std::int64_t n = x.elements();
      g->in[index(r)] = ptr<float>(x);
      if (r == 0) g->sum.resize(static_cast<std::size_t>(n));
      g->barrier.arrive_and_wait();
      const std::int64_t begin = n * r / g->size, end = n * (r + 1) / g->size;
      for (std::int64_t i = begin; i < end; ++i) {
        float total = 0;
        for (int k = 0; k < g->size; ++k) total += g->in[index(k)][i];
        g->sum[static_cast<std::size_t>(i)] = total;
      }
      g->barrier.arrive_and_wait();
      copy(ptr<float>(x), g->sum.data(), n);
      g->barrier.arrive_and_wait();
    });
  }

  void all_gather(const Exec& exec, View out, View x) override {
    exec.launch([g = group_, r = rank_, out, x] {
      g->in[index(r)] = ptr<float>(x);
      g->barrier.arrive_and_wait();
      const std::int64_t n = x.elements();
      for (int k = 0; k < g->size; ++k) {
        copy(ptr<float>(out) + k * n, g->in[index(k)], n);
      }
      g->barrier.arrive_and_wait();
    });
  }

  void reduce_scatter(const Exec& exec, View out, View x) override {
    exec.launch([g = group_, r = rank_, out, x] {
      g->in[index(r)] = ptr<float>(x);
      g->barrier.arrive_and_wait();
      const std::int64_t n = out.elements();
      for (std::int64_t i = 0; i < n; ++i) {
        float total = 0;
        for (int k = 0; k < g->size; ++k) total += g->in[index(k)][r * n + i];
        ptr<float>(out)[i] = total;
      }
      g->barrier.arrive_and_wait();
    });
  }

  void all_to_all_v(const Exec& exec, View out, View x, std::vector<std::int64_t> send,
                    std::vector<std::int64_t> recv) override {
    exec.launch([g = group_, r = rank_, out, x, send = std::move(send), recv = std::move(recv)] {
      auto& mine = g->offsets[index(r)];
      mine.assign(1, 0);
      for (const std::int64_t count : send) mine.push_back(mine.back() + count);
      g->in[index(r)] = ptr<float>(x);
      g->barrier.arrive_and_wait();
      const std::int64_t width = x.dim(1);
      float* dst = ptr<float>(out);
      for (int k = 0; k < g->size; ++k) {
        const std::int64_t rows = recv[index(k)];
        copy(dst, g->in[index(k)] + g->offsets[index(k)][index(r)] * width, rows * width);
        dst += rows * width;
      }
      g->barrier.arrive_and_wait();
    });
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_in_process_communicators(int size) {
  auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(index(size));
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<InProcess>(group, r));
  return ranks;
}

}  // namespace cadre
