// Communicator: what ranks of one model exchange. Calls enqueue like ops do.
#pragma once

#include <memory>
#include <vector>

#include "tensor/exec.h"

namespace cadre {

// Every rank makes the same calls in the same order. Tensors are dense float32. Sums are taken in rank order, so every
// rank gets the same bits and a repeated call gives them again.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // x [..] becomes the sum over ranks, on every rank.
  virtual void all_reduce(const Exec& exec, View x) = 0;
  // out [size, n] receives x [n] of every rank.
  virtual void all_gather(const Exec& exec, View out, View x) = 0;
  // out [n] receives this rank's part of the sum over ranks of x [size, n].
  virtual void reduce_scatter(const Exec& exec, View out, View x) = 0;
  // Row i of `x` [rows, w] goes to the rank it is addressed to: rank r gets send_counts[r] rows, in order. `out` must
  // hold the rows all ranks send here, which arrive ordered by sender. Counts are host values known to both sides:
  // recv_counts[r] is what rank r sends to this one.
  virtual void all_to_all_v(const Exec& exec, View out, View x, std::vector<std::int64_t> send_counts,
                            std::vector<std::int64_t> recv_counts) = 0;
};

// One rank: every call is the identity.
std::unique_ptr<Communicator> make_single_communicator();

// `size` ranks inside this process, each driven by a thread of its own.
std::vector<std::unique_ptr<Communicator>> make_in_process_communicators(int size);

}  // namespace cadre
