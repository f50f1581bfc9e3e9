#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cadre {
namespace {

TEST(Float16, KnownValues) {
  EXPECT_EQ(to_float(F16{0x3c00}), 1.0f);
  EXPECT_EQ(to_float(F16{0xc000}), -2.0f);
  EXPECT_EQ(to_float(F16{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(F16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(F16{0x8001}), -0x1p-24f);
  EXPECT_EQ(to_float(F16{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(to_float(F16{0x7e00})));
}

TEST(Float16, Bf16RoundTripAndTies) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_float(Bf16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(x))));
    } else {
      EXPECT_EQ(to_bf16(x).bits, bits);
    }
  }
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie to even, down
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie to even, up
}

}  // namespace
}  // namespace cadre
