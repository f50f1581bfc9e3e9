// TestExec: an Exec on a chosen device with its own stream, arena and threads, and ways to bring test data there and
// back. run_everywhere: the same computation on every kind of machine, which must give the same bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dot.h"
#include "base/float16.h"
#include "lora/table.h"
#include "tensor/exec.h"
#include "tensor/test_device.h"

namespace cadre::test {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

// ---- numbers ----------------------------------------------------------------------------------------------------

// Uniform in [-scale, scale), the same with every standard library.
inline Floats random_floats(unsigned seed, std::int64_t count, float scale = 1) {
  std::mt19937 bits(seed);
  Floats out(static_cast<std::size_t>(count));
  for (float& x : out) x = scale * (static_cast<float>(bits() >> 8) * 0x1p-23f - 1.0f);
  return out;
}

// Towards zero; numbers below 2^-14 become 0. Enough for test data, which is read back exactly.
inline F16 truncate_to_f16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x), sign = u >> 16 & 0x8000u;
  const int exponent = static_cast<int>(u >> 23 & 0xffu) - 112;
  if (exponent <= 0) return {static_cast<std::uint16_t>(sign)};
  return {static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent) << 10 | (u >> 13 & 0x3ffu))};
}

// The same numbers as `dtype` stores them, so that a double-precision loop sees what the op sees.
inline Floats rounded(DType dtype, Floats values) {
  for (float& x : values) {
    if (dtype == DType::kBF16) x = to_float(to_bf16(x));
    if (dtype == DType::kF16) x = to_float(truncate_to_f16(x));
  }
  return values;
}

inline Floats random_weights(DType dtype, unsigned seed, std::int64_t count, float scale = 1) {
  return rounded(dtype, random_floats(seed, count, scale));
}

inline std::vector<std::byte> to_bytes(DType dtype, const Floats& values) {
  std::vector<std::byte> out(values.size() * static_cast<std::size_t>(dtype_bits(dtype)) / 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = dtype == DType::kBF16 ? to_bf16(values[i]).bits : truncate_to_f16(values[i]).bits;
    if (dtype == DType::kF32) {
      std::memcpy(out.data() + i * 4, &values[i], 4);
    } else {
      std::memcpy(out.data() + i * 2, &half, 2);
    }
  }
  return out;
}

// ---- the machine ------------------------------------------------------------------------------------------------

struct Machine {
  std::string device = "cpu";  // or "test"
  int threads = 1;
};

inline std::vector<Machine> all_machines() { return {{"cpu", 1}, {"cpu", 2}, {"cpu", 5}, {"test", 1}, {"test", 3}}; }

class TestExec {
 public:
  explicit TestExec(const Machine& machine = {}, std::size_t arena_bytes = std::size_t{1} << 20)
      : device_(machine.device == "test" ? make_test_device(std::size_t{256} << 20).value() : make_cpu_device()),
        stream_(device_->make_stream()),
        threads_(machine.threads),
        arena_(device_->allocate(arena_bytes).value()) {
    exec.device = device_.get();
    exec.stream = stream_.get();
    exec.arena = &arena_;
    exec.threads = &threads_;
  }
  ~TestExec() { stream_->wait(); }
  TestExec(const TestExec&) = delete;
  TestExec& operator=(const TestExec&) = delete;

  Exec exec;  // `ranks` is the test's to set
  const std::shared_ptr<Device>& device() const { return device_; }

  // Dense device memory with these values.
  View put(DType dtype, std::initializer_list<std::int64_t> dims, const Floats& values) {
    return put_bytes(View(nullptr, dtype, dims), to_bytes(dtype, values));
  }
  View put(std::initializer_list<std::int64_t> dims, const Floats& values) { return put(DType::kF32, dims, values); }
  View put(const Ints& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(std::int32_t));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return put_bytes(View(nullptr, DType::kI32, {static_cast<std::int64_t>(values.size())}), bytes);
  }
  View put(std::initializer_list<std::int64_t> dims, const Ints& values) { return put(values).reshaped(dims); }

  // The same with `gap` elements of NaN after each row of the first dimension: strided input, and any read of the gap
  // shows.
  View put_strided(DType dtype, std::initializer_list<std::int64_t> dims, const Floats& values, std::int64_t gap) {
    View shape(nullptr, dtype, dims);
    const std::int64_t rows = shape.dim(0), width = rows == 0 ? 0 : shape.elements() / rows;
    Floats spread(static_cast<std::size_t>(rows * (width + gap)), std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * width, width, spread.begin() + r * (width + gap));
    }
    View v = put(dtype, {rows, width + gap}, spread);
    shape.data = v.data;
    shape.stride[0] = width + gap;
    return shape;
  }
  View put_strided(std::initializer_list<std::int64_t> dims, const Floats& values, std::int64_t gap = 3) {
    return put_strided(DType::kF32, dims, values, gap);
  }

  // Float32 memory for results, full of NaN, with a gap after each row if wanted.
  View make(std::initializer_list<std::int64_t> dims, std::int64_t gap = 0) {
    const View shape(nullptr, DType::kF32, dims);
    return put_strided(dims, Floats(static_cast<std::size_t>(shape.elements()), std::nanf("")), gap);
  }

  // What lies there now, in row-major order. Waits for the stream.
  Floats get(const View& v) { return get_as<float>(v); }
  Ints get_ints(const View& v) { return get_as<std::int32_t>(v); }

  // Host memory that lives as long as this object: what adapters are made of.
  View host(DType dtype, std::initializer_list<std::int64_t> dims, const Floats& values) {
    host_.push_back(to_bytes(dtype, values));
    return View(host_.back().data(), dtype, dims);
  }
  // A random adapter term of size about `scale`, all of it of one type.
  LowRank low_rank(DType dtype, unsigned seed, int rank, std::int64_t in, std::int64_t out, float scale = 0.5f) {
    return {host(dtype, {rank, in}, random_weights(dtype, seed, rank * in)),
            host(dtype, {out, rank}, random_weights(dtype, seed + 1, rank * out)), scale};
  }
  LoraTable lora_table(int slots, int width) { return LoraTable::make(*device_, *stream_, slots, width).value(); }
  void set(LoraTable& table, int slot, const std::vector<LowRank>& terms, const View& replacement = {}) {
    const Status status = table.set(*device_, *stream_, slot, terms, replacement);
    EXPECT_TRUE(status.ok()) << status.message();
  }

 private:
  View put_bytes(View v, const std::vector<std::byte>& bytes) {
    EXPECT_EQ(static_cast<std::size_t>(v.bytes()), bytes.size()) << v.describe();
    buffers_.push_back(device_->allocate(bytes.size()).value());
    v.data = buffers_.back().data();
    device_->upload(*stream_, v.data, bytes.data(), bytes.size());
    return v;
  }

  template <class T>
  std::vector<T> get_as(const View& v) {
    std::vector<T> out(static_cast<std::size_t>(v.elements()));
    if (out.empty()) return out;
    std::int64_t span = 1;
    for (int i = 0; i < v.rank; ++i) span += (v.dim(i) - 1) * v.step(i);
    std::vector<T> all(static_cast<std::size_t>(span));
    device_->to_host(*stream_, all.data(), v.data, all.size() * sizeof(T));
    View there = v;
    there.data = all.data();
    copy_dense(there, out.data());
    return out;
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  ThreadPool threads_;
  Arena arena_;
  std::vector<Buffer> buffers_;
  std::deque<std::vector<std::byte>> host_;
};

// ---- comparing --------------------------------------------------------------------------------------------------

inline void expect_same_bits(const Floats& got, const Floats& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
        << what << ": element " << i << " is " << got[i] << ", want " << want[i];
  }
}

// Runs `compute` on every machine, expects the same bits from all, and returns them.
inline Floats run_everywhere(const std::function<Floats(TestExec&)>& compute) {
  TestExec plain;
  const Floats first = compute(plain);
  for (const Machine& machine : all_machines()) {
    TestExec run(machine);
    expect_same_bits(compute(run), first, machine.device + " with " + std::to_string(machine.threads) + " threads");
  }
  return first;
}

// A sum in double precision together with the sum of its terms' magnitudes, which bounds what rounding can do to it.
struct Exact {
  double value = 0, magnitude = 0;
  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

// |got - want| is at most `tolerance` times the magnitude: an error bound from the operands, not from a guess.
inline void expect_close(const Floats& got, const std::vector<Exact>& want, double tolerance = 2e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i].value);
    ASSERT_TRUE(error <= tolerance * want[i].magnitude + 1e-30)
        << "element " << i << " is " << got[i] << ", want " << want[i].value << ", allowed error "
        << tolerance * want[i].magnitude;
  }
}

}  // namespace cadre::test
