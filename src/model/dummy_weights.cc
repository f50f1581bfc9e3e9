#include "model/dummy_weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>
#include <system_error>

#include "base/float16.h"
#include "base/result.h"

namespace cadre {
namespace {

constexpr int kTableBits = 12;
constexpr std::size_t kTable = std::size_t{1} << kTableBits;
constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // bytes that one thread makes at a time

// A bijection of 64 bits whose outputs look random (the finaliser of SplitMix64; Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

using Numbers = std::array<float, kTable>;

// The middles of kTable equally likely parts of [0, 1).
double middle(std::size_t i) { return (static_cast<double>(i) + 0.5) / kTable; }

// Equally likely values of a normal distribution: x with Phi(x) = middle, by bisection.
const Numbers& normal_values() {
  static const Numbers kValues = [] {
    Numbers values;
    for (std::size_t i = 0; i < kTable; ++i) {
      double low = -8, high = 8;
      for (int step = 0; step < 48; ++step) {
        const double x = (low + high) / 2;
        (0.5 * std::erfc(-x * M_SQRT1_2) < middle(i) ? low : high) = x;
      }
      values[i] = static_cast<float>(low);
    }
    return values;
  }();
  return kValues;
}

template <class F>
Numbers values_of(const F& f) {
  Numbers values;
  for (std::size_t i = 0; i < kTable; ++i) values[i] = static_cast<float>(f(middle(i)));
  return values;
}

// By the name's end, for tensors of one dimension; the first that fits.
struct Rule {
  std::string_view end;
  double (*value)(double u);  // of u in (0, 1)
};
double near_one(double u) { return 0.9 + 0.2 * u; }
double near_zero(double u) { return 0.1 * u - 0.05; }
constexpr Rule kRules[] = {
    // Mamba-2 and the gated delta net start with decay rates of 1 to 16 and steps of 0.001 to 0.1, of which the bias
    // is the inverse softplus.
    {".A_log", [](double u) { return std::log(1 + 15 * u); }},
    {".dt_bias", [](double u) { return std::log(std::expm1(1e-3 * std::pow(100.0, u))); }},
    {".D", near_one},
    {".weight", near_one},  // of a norm
    {"scale", near_one},
    {".layer_scalar", near_one},
    {"", near_zero},
};

// float8_e4m3 codes of 0.25 to 3.75, both signs, and their root of the mean square.
constexpr std::uint32_t kFirstCode = 5u << 3, kCodes = 32;
double fp8_deviation() {
  double sum = 0;
  for (std::uint32_t code = kFirstCode; code < kFirstCode + kCodes; ++code) {
    const double value = (8 + (code & 7u)) * std::ldexp(1.0, static_cast<int>(code >> 3) - 10);
    sum += value * value;
  }
  return std::sqrt(sum / kCodes);
}

// Of the sixteen values of MXFP4, equally likely: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
const double kMxfp4Deviation = std::sqrt((0.25 + 1 + 2.25 + 4 + 9 + 16 + 36) / 8);

// One over the root of the elements that a row of the matrix has.
double row_deviation(const TensorInfo& tensor, std::int64_t elements_for_one) {
  return 1 / std::sqrt(static_cast<double>(tensor.shape.back() * elements_for_one));
}

std::uint32_t bits_of(float value, DType dtype) {
  if (dtype == DType::kF32) return std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::kBF16) return to_bf16(value).bits;
  // float16: the numbers here are far from its limits; below its normal range they become 0.
  if (std::fabs(value) < 0x1p-14f) return 0;
  const auto u = std::bit_cast<std::uint32_t>(value) + 0xfffu;
  return ((u >> 16) & 0x8000u) | (((u & 0x7fffffffu) >> 13) - (112u << 10));
}

}  // namespace

DummyTensor::DummyTensor(const TensorInfo& tensor, std::uint64_t seed)
    : key_(mix(seed) ^ mix(hash(tensor.name))), bytes_(dtype_bits(tensor.dtype) / 8), table_(kTable) {
  const auto codes = [&](const auto& code) {
    for (std::size_t i = 0; i < kTable; ++i) table_[i] = code(static_cast<std::uint32_t>(i));
  };
  const auto numbers = [&](const Numbers& values, double factor) {
    for (std::size_t i = 0; i < kTable; ++i) {
      table_[i] = bits_of(static_cast<float>(values[i] * factor), tensor.dtype);
    }
  };
  if (tensor.dtype == DType::kF8E4M3) {
    codes([](std::uint32_t i) { return (kFirstCode + i % kCodes) | ((i / kCodes) & 1u) << 7; });
  } else if (tensor.dtype == DType::kU8 && tensor.name.ends_with("_blocks")) {
    codes([](std::uint32_t i) { return i & 0xffu; });
  } else if (tensor.dtype == DType::kU8) {
    const double scale = row_deviation(tensor, 32) / kMxfp4Deviation;
    codes([&](std::uint32_t) { return static_cast<std::uint32_t>(127 + std::lround(std::log2(scale))); });
  } else if (tensor.name.ends_with("_scale_inv")) {
    numbers(values_of(near_one), row_deviation(tensor, 128) / fp8_deviation());
  } else if (tensor.shape.size() >= 2) {
    numbers(normal_values(), row_deviation(tensor, 1));
  } else {
    const auto rule =
        std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) { return tensor.name.ends_with(r.end); });
    numbers(values_of(rule->value), 1);
  }
}

void DummyTensor::fill(std::uint64_t begin, std::span<std::byte> out) const {
  const auto write = [&]<class T>(T) {
    std::uint64_t at = begin / sizeof(T), word = 0;
    std::byte* to = out.data();
    for (std::byte* const end = to + out.size(); to != end; to += sizeof(T), ++at) {
      // Four elements of one word, each with a lane of its own: where a part begins changes nothing.
      if (to == out.data() || at % 4 == 0) word = mix(key_ + at / 4) >> (16 * (at % 4));
      const T value = static_cast<T>(table_[(word & 0xffffu) >> (16 - kTableBits)]);
      word >>= 16;
      std::memcpy(to, &value, sizeof value);
    }
  };
  if (bytes_ == 1) write(std::uint8_t{});
  if (bytes_ == 2) write(std::uint16_t{});
  if (bytes_ == 4) write(std::uint32_t{});
}

Result<std::shared_ptr<Checkpoint>> make_dummy_weights(const Checkpoint& plan, std::uint64_t seed,
                                                       ThreadPool& threads) {
  constexpr std::uint64_t kAlign = 64;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : plan.made_tensors()) bytes += (tensor.nbytes + kAlign - 1) / kAlign * kAlign;
  if (bytes == 0) return error(Code::kInvalidArgument, plan.folder(), ": no tensor is planned");
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return error(Code::kOutOfMemory, "random weights need ", bytes >> 20,
                 " MiB: ", std::generic_category().message(errno), "; use fewer layers");
  }
  // Best effort: in pages of 4 KiB the faults take longer than the numbers.
  (void)::madvise(at, bytes, MADV_HUGEPAGE);
  const std::shared_ptr<void> memory(at, [bytes](void* p) { ::munmap(p, bytes); });
  std::shared_ptr<Checkpoint> made = Checkpoint::made(plan.folder());
  auto* to = static_cast<std::byte*>(at);
  for (TensorInfo tensor : plan.made_tensors()) {
    const DummyTensor dummy(tensor, seed);
    const auto size = static_cast<std::int64_t>(tensor.nbytes);
    threads.parallel_for((size + kPiece - 1) / kPiece, 1, [&](std::int64_t first, std::int64_t last) {
      const std::int64_t begin = first * kPiece, end = std::min(last * kPiece, size);
      dummy.fill(static_cast<std::uint64_t>(begin), {to + begin, static_cast<std::size_t>(end - begin)});
    });
    tensor.data = to;
    to += (tensor.nbytes + kAlign - 1) / kAlign * kAlign;
    CADRE_TRY(made->add_made(std::move(tensor), memory));
  }
  return made;
}

}  // namespace cadre
