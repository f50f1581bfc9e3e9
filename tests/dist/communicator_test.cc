// Every collective call at every number of ranks, on the CPU and on the test device: what each rank receives, to the
// bit.
#include "dist/communicator.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tensor/test_device.h"

namespace cadre {
namespace {

using Floats = std::vector<float>;
using Counts = std::vector<std::int64_t>;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Magnitudes from 2^-12 to 2^12: the order of a sum shows in its bits.
Floats numbers(unsigned seed, std::int64_t count) {
  std::mt19937 bits(seed);
  Floats out(static_cast<std::size_t>(count));
  for (float& x : out) {
    const float fraction = static_cast<float>(bits() >> 8) * 0x1p-23f - 1.0f;
    x = std::ldexp(fraction, static_cast<int>(bits() % 25) - 12);
  }
  return out;
}

std::vector<std::uint32_t> bits_of(const Floats& values) {
  std::vector<std::uint32_t> out;
  for (const float x : values) out.push_back(std::bit_cast<std::uint32_t>(x));
  return out;
}

// One rank as its thread sees it.
class Rank {
 public:
  Rank(Communicator& communicator, std::shared_ptr<Device> device)
      : ranks(communicator), device_(std::move(device)), stream_(device_->make_stream()) {
    arena_ = Arena(device_->allocate(64).value());
    exec = {.device = device_.get(), .stream = stream_.get(), .arena = &arena_, .ranks = &ranks};
  }
  ~Rank() { stream_->wait(); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Communicator& ranks;
  Exec exec;
  int me() const { return ranks.rank(); }
  int size() const { return ranks.size(); }

  View put(std::initializer_list<std::int64_t> dims, const Floats& values) {
    View v(nullptr, DType::kF32, dims);
    EXPECT_EQ(static_cast<std::size_t>(v.elements()), values.size());
    const std::size_t bytes = values.size() * sizeof(float);
    buffers_.push_back(device_->allocate(bytes).value());
    v.data = buffers_.back().data();
    device_->upload(*stream_, v.data, values.data(), bytes);
    return v;
  }
  // Full of a number that no result has.
  View make(std::initializer_list<std::int64_t> dims) {
    return put(dims, Floats(static_cast<std::size_t>(View(nullptr, DType::kF32, dims).elements()), -99.0f));
  }
  Floats get(const View& v) {
    Floats out(static_cast<std::size_t>(v.elements()));
    device_->to_host(*stream_, out.data(), v.data, out.size() * sizeof(float));
    return out;
  }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Arena arena_;
  std::vector<Buffer> buffers_;
};

struct Setting {
  std::string name;
  int size;
  bool single;
  std::string device;  // "cpu", "test": a test device for each rank, "shared": one for all
};

class Collective : public testing::TestWithParam<Setting> {
 protected:
  int size() const { return GetParam().size; }

  // Runs `body` on every rank, each on its own thread.
  void on_every_rank(const std::function<void(Rank&)>& body) const {
    std::vector<std::unique_ptr<Communicator>> communicators;
    if (GetParam().single) {
      communicators.push_back(make_single_communicator());
    } else {
      communicators = make_in_process_communicators(size());
    }
    ASSERT_EQ(communicators.size(), index(size()));
    const auto make_device = [&] {
      return GetParam().device == "cpu" ? make_cpu_device() : make_test_device(std::size_t{16} << 20).value();
    };
    const std::shared_ptr<Device> shared = make_device();
    std::vector<std::unique_ptr<Rank>> ranks;
    for (const auto& communicator : communicators) {
      ranks.push_back(std::make_unique<Rank>(*communicator, GetParam().device == "shared" ? shared : make_device()));
    }
    std::vector<std::thread> threads;
    for (const auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
    for (std::thread& thread : threads) thread.join();
  }

  // What rank `r` brings to a call, different for each.
  Floats input(int r, std::int64_t count, unsigned round = 0) const {
    return numbers(1 + 100 * round + static_cast<unsigned>(r), count);
  }

  // The sum over ranks in their order, of elements [begin, begin + count) of inputs of `all` elements.
  Floats sum(std::int64_t all, std::int64_t begin, std::int64_t count, unsigned round = 0,
             bool backwards = false) const {
    Floats total(static_cast<std::size_t>(count), 0.0f);
    for (int k = 0; k < size(); ++k) {
      const Floats x = input(backwards ? size() - 1 - k : k, all, round);
      for (std::int64_t i = 0; i < count; ++i) {
        total[static_cast<std::size_t>(i)] += x[static_cast<std::size_t>(begin + i)];
      }
    }
    return total;
  }
};

TEST_P(Collective, RanksKnowThemselves) {
  std::vector<int> seen(index(size()), -1);
  on_every_rank([&](Rank& rank) {
    EXPECT_EQ(rank.size(), size());
    seen.at(index(rank.me())) = rank.me();
  });
  for (int r = 0; r < size(); ++r) EXPECT_EQ(seen[index(r)], r);
}

TEST_P(Collective, AllReduceIsTheSumInRankOrder) {
  for (const std::int64_t n : {0, 1, 2, 3, 7, 1000}) {
    std::vector<Floats> got(index(size())), again(index(size()));
    on_every_rank([&](Rank& rank) {
      const Floats mine = input(rank.me(), n);
      const View first = rank.put({n}, mine), second = rank.put({n}, mine);
      rank.ranks.all_reduce(rank.exec, first);
      rank.ranks.all_reduce(rank.exec, second);
      got[index(rank.me())] = rank.get(first);
      again[index(rank.me())] = rank.get(second);
    });
    const Floats want = sum(n, 0, n);
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(bits_of(got[index(r)]), bits_of(want)) << "rank " << r << ", " << n << " elements";
      EXPECT_EQ(bits_of(again[index(r)]), bits_of(want)) << "rank " << r << ", " << n << " elements, repeated";
    }
    // The data tells orders apart, from three ranks on.
    if (n == 1000 && size() > 2) {
      EXPECT_NE(bits_of(sum(n, 0, n, 0, true)), bits_of(want));
    }
  }
}

TEST_P(Collective, AllReduceOfAMatrix) {
  std::vector<Floats> got(index(size()));
  on_every_rank([&](Rank& rank) {
    const View x = rank.put({3, 5}, input(rank.me(), 15));
    rank.ranks.all_reduce(rank.exec, x);
    got[index(rank.me())] = rank.get(x);
  });
  for (const Floats& one : got) EXPECT_EQ(bits_of(one), bits_of(sum(15, 0, 15)));
}

TEST_P(Collective, AllGatherIsInRankOrder) {
  for (const std::int64_t n : {0, 1, 5, 257}) {
    std::vector<Floats> got(index(size())), kept(index(size()));
    on_every_rank([&](Rank& rank) {
      const View x = rank.put({n}, input(rank.me(), n)), out = rank.make({size(), n});
      rank.ranks.all_gather(rank.exec, out, x);
      got[index(rank.me())] = rank.get(out);
      kept[index(rank.me())] = rank.get(x);
    });
    Floats want;
    for (int r = 0; r < size(); ++r) {
      const Floats part = input(r, n);
      want.insert(want.end(), part.begin(), part.end());
      EXPECT_EQ(kept[index(r)], part) << "the input of rank " << r << " changed";
    }
    for (int r = 0; r < size(); ++r) EXPECT_EQ(got[index(r)], want) << "rank " << r << ", " << n << " elements";
  }
}

TEST_P(Collective, ReduceScatterGivesEachItsPart) {
  for (const std::int64_t n : {0, 1, 3, 200}) {
    std::vector<Floats> got(index(size()));
    on_every_rank([&](Rank& rank) {
      const View x = rank.put({size(), n}, input(rank.me(), size() * n)), out = rank.make({n});
      rank.ranks.reduce_scatter(rank.exec, out, x);
      got[index(rank.me())] = rank.get(out);
    });
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(bits_of(got[index(r)]), bits_of(sum(size() * n, r * n, n))) << "rank " << r << ", " << n << " elements";
    }
  }
}

// How many rows sender s has for receiver r, by name of the pattern.
struct Pattern {
  std::string name;
  std::function<std::int64_t(int s, int r, int size)> count;
};

std::vector<Pattern> patterns() {
  return {
      {"uneven with zeros", [](int s, int r, int) { return (3 * s + 2 * r + 1) % 4; }},
      {"nobody sends", [](int, int, int) { return 0; }},
      {"all to the last", [](int s, int r, int size) { return r == size - 1 ? 2 + s : 0; }},
      {"all from the first", [](int s, int r, int) { return s == 0 ? 1 + r : 0; }},
      {"each to itself", [](int s, int r, int) { return s == r ? 3 : 0; }},
      {"one row each", [](int, int, int) { return 1; }},
  };
}

TEST_P(Collective, AllToAllWithUnevenCounts) {
  constexpr std::int64_t kWidth = 3;
  for (const Pattern& pattern : patterns()) {
    std::vector<Floats> got(index(size()));
    // Row i from s to r: 1000 * s + 100 * r + i, then the column.
    const auto row = [](Floats& to, int s, int r, std::int64_t i) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        to.push_back(static_cast<float>(1000 * s + 100 * r + i) + 0.25f * static_cast<float>(c));
      }
    };
    on_every_rank([&](Rank& rank) {
      Counts send, receive;
      Floats mine;
      for (int k = 0; k < size(); ++k) {
        send.push_back(pattern.count(rank.me(), k, size()));
        receive.push_back(pattern.count(k, rank.me(), size()));
        for (std::int64_t i = 0; i < send.back(); ++i) row(mine, rank.me(), k, i);
      }
      const View x = rank.put({std::accumulate(send.begin(), send.end(), std::int64_t{0}), kWidth}, mine);
      const View out = rank.make({std::accumulate(receive.begin(), receive.end(), std::int64_t{0}), kWidth});
      rank.ranks.all_to_all_v(rank.exec, out, x, send, receive);
      got[index(rank.me())] = rank.get(out);
    });
    for (int r = 0; r < size(); ++r) {
      Floats want;
      for (int s = 0; s < size(); ++s) {
        for (std::int64_t i = 0; i < pattern.count(s, r, size()); ++i) row(want, s, r, i);
      }
      EXPECT_EQ(got[index(r)], want) << pattern.name << ", rank " << r;
    }
  }
}

// Many calls of all kinds and sizes in a row, with no waiting between them: none may see another's data.
TEST_P(Collective, CallsInARowKeepApart) {
  constexpr unsigned kRounds = 30;
  struct Got {
    std::vector<Floats> reduced, gathered, scattered, exchanged;
  };
  std::vector<Got> got(index(size()));
  const auto count = [](unsigned round) { return static_cast<std::int64_t>(1 + round * 5 % 17); };
  on_every_rank([&](Rank& rank) {
    std::vector<View> reduced, gathered, scattered, exchanged;
    for (unsigned round = 0; round < kRounds; ++round) {
      const std::int64_t n = count(round), all = n * size();
      const View x = rank.put({n}, input(rank.me(), n, round));
      const View wide = rank.put({size(), n}, input(rank.me(), all, round));
      gathered.push_back(rank.make({size(), n}));
      scattered.push_back(rank.make({n}));
      exchanged.push_back(rank.make({size(), n}));
      rank.ranks.all_gather(rank.exec, gathered.back(), x);
      rank.ranks.reduce_scatter(rank.exec, scattered.back(), wide);
      rank.ranks.all_to_all_v(rank.exec, exchanged.back(), wide, Counts(index(size()), 1), Counts(index(size()), 1));
      rank.ranks.all_reduce(rank.exec, x);
      reduced.push_back(x);
    }
    Got& mine = got[index(rank.me())];
    for (unsigned round = 0; round < kRounds; ++round) {
      mine.reduced.push_back(rank.get(reduced[round]));
      mine.gathered.push_back(rank.get(gathered[round]));
      mine.scattered.push_back(rank.get(scattered[round]));
      mine.exchanged.push_back(rank.get(exchanged[round]));
    }
  });
  for (unsigned round = 0; round < kRounds; ++round) {
    const std::int64_t n = count(round), all = n * size();
    Floats gathered;
    for (int k = 0; k < size(); ++k) {
      const Floats part = input(k, n, round);
      gathered.insert(gathered.end(), part.begin(), part.end());
    }
    for (int r = 0; r < size(); ++r) {
      SCOPED_TRACE("round " + std::to_string(round) + ", rank " + std::to_string(r));
      EXPECT_EQ(bits_of(got[index(r)].reduced[round]), bits_of(sum(n, 0, n, round)));
      EXPECT_EQ(got[index(r)].gathered[round], gathered);
      EXPECT_EQ(bits_of(got[index(r)].scattered[round]), bits_of(sum(all, r * n, n, round)));
      Floats exchanged;
      for (int k = 0; k < size(); ++k) {
        const Floats theirs = input(k, all, round);
        exchanged.insert(exchanged.end(), theirs.begin() + r * n, theirs.begin() + (r + 1) * n);
      }
      EXPECT_EQ(got[index(r)].exchanged[round], exchanged);
    }
  }
}

// A rank that only measures its scratch memory does so alone: nothing is exchanged and nobody is waited for.
TEST_P(Collective, MeasuringIsDoneAlone) {
  on_every_rank([&](Rank& rank) {
    if (rank.me() != 0) return;
    Arena measuring;
    Exec exec = rank.exec;
    exec.arena = &measuring;
    const View x(nullptr, DType::kF32, {4}), wide(nullptr, DType::kF32, {size(), 4});
    rank.ranks.all_reduce(exec, x);
    rank.ranks.all_gather(exec, wide, x);
    rank.ranks.reduce_scatter(exec, x, wide);
    rank.ranks.all_to_all_v(exec, wide, wide, Counts(index(size()), 1), Counts(index(size()), 1));
    exec.stream->wait();
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> all = {{"SingleCpu", 1, true, "cpu"}, {"SingleTest", 1, true, "test"}};
  for (const int size : {1, 2, 3, 5}) {
    all.push_back({"Cpu" + std::to_string(size), size, false, "cpu"});
    all.push_back({"Test" + std::to_string(size), size, false, "test"});
    all.push_back({"SharedTest" + std::to_string(size), size, false, "shared"});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collective, testing::ValuesIn(settings()),
                         [](const testing::TestParamInfo<Setting>& test) { return test.param.name; });

}  // namespace
}  // namespace cadre
