#include "model/dummy_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/dot.h"
#include "base/float16.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

TensorInfo info(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.nbytes = static_cast<std::uint64_t>(dtype_bits(dtype)) / 8;
  for (const std::int64_t size : tensor.shape) tensor.nbytes *= static_cast<std::uint64_t>(size);
  return tensor;
}

std::vector<std::byte> all_of(const TensorInfo& tensor, std::uint64_t seed = 0) {
  std::vector<std::byte> bytes(tensor.nbytes);
  DummyTensor(tensor, seed).fill(0, bytes);
  return bytes;
}

std::vector<float> values(const TensorInfo& tensor, std::uint64_t seed = 0) {
  const std::vector<std::byte> bytes = all_of(tensor, seed);
  std::vector<float> out;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) out.push_back(element(bytes.data(), tensor.dtype, i));
  return out;
}

struct Moments {
  double mean = 0, deviation = 0, least = 1e30, most = -1e30;
};
Moments moments(const std::vector<float>& values) {
  Moments m;
  for (const double v : values) {
    m.mean += v;
    m.deviation += v * v;
    m.least = std::min(m.least, v);
    m.most = std::max(m.most, v);
  }
  const auto n = static_cast<double>(values.size());
  m.mean /= n;
  m.deviation = std::sqrt(m.deviation / n - m.mean * m.mean);
  return m;
}

TEST(DummyTensor, AnyPartIsMadeByItself) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF8E4M3}) {
    const TensorInfo tensor = info("model.layers.0.mlp.experts.3.up_proj.weight", dtype, {37, 29});
    const std::vector<std::byte> whole = all_of(tensor);
    const DummyTensor dummy(tensor, 0);
    const auto size = static_cast<std::uint64_t>(dtype_bits(dtype)) / 8;
    for (const std::uint64_t elements : {1u, 3u, 4u, 7u, 64u}) {
      std::vector<std::byte> parts(whole.size());
      for (std::uint64_t at = 0; at < whole.size(); at += elements * size) {
        dummy.fill(at, std::span(parts).subspan(at, std::min(elements * size, whole.size() - at)));
      }
      EXPECT_EQ(parts, whole) << elements;
    }
  }
}

TEST(DummyTensor, SeedAndNameMakeOtherNumbers) {
  const TensorInfo tensor = info("a.weight", DType::kBF16, {64, 64});
  EXPECT_EQ(all_of(tensor, 1), all_of(tensor, 1));
  EXPECT_NE(all_of(tensor, 1), all_of(tensor, 2));
  EXPECT_NE(all_of(tensor, 1), all_of(info("b.weight", DType::kBF16, {64, 64}), 1));
}

TEST(DummyTensor, MatricesKeepTheScaleOfWhatTheyMultiply) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    const Moments m = moments(values(info("x.q_proj.weight", dtype, {300, 400})));
    EXPECT_NEAR(m.mean, 0, 0.001) << dtype_name(dtype);
    EXPECT_NEAR(m.deviation, 0.05, 0.001) << dtype_name(dtype);
    EXPECT_LT(m.most, 0.05 * 5) << dtype_name(dtype);
    EXPECT_GT(m.most, 0.05 * 3) << "has no tails";
  }
}

TEST(DummyTensor, VectorsAreWhatTheirNameAsksFor) {
  const auto in = [](const std::string& name, double least, double most) {
    const Moments m = moments(values(info(name, DType::kF32, {4096})));
    EXPECT_GE(m.least, least) << name;
    EXPECT_LE(m.most, most) << name;
    EXPECT_GT(m.deviation, (most - least) / 10) << name;
  };
  in("model.norm.weight", 0.9, 1.1);
  in("model.layers.0.mlp.gate.e_score_correction_bias", -0.05, 0.05);
  in("model.layers.0.self_attn.q_proj.bias", -0.05, 0.05);
  in("model.layers.0.linear_attn.A_log", 0, std::log(16.0));
  in("model.layers.0.mixer.D", 0.9, 1.1);
  in("model.layers.0.router.per_expert_scale", 0.9, 1.1);
  // Steps of 0.001 to 0.1 after softplus.
  for (const float bias : values(info("model.layers.0.mixer.dt_bias", DType::kF32, {4096}))) {
    const double step = std::log1p(std::exp(static_cast<double>(bias)));
    ASSERT_GE(step, 0.99e-3);
    ASSERT_LE(step, 0.101);
  }
}

TEST(DummyTensor, Float16IsRoundedToTheNearest) {
  const TensorInfo half = info("w", DType::kF16, {64, 64}), full = info("w", DType::kF32, {64, 64});
  const std::vector<float> got = values(half), want = values(full);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], std::max(std::fabs(want[i]) * 0x1p-11f, 0x1p-14f));
  }
}

}  // namespace
}  // namespace cadre::test
