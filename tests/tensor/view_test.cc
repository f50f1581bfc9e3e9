#include "tensor/view.h"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "tensor/device.h"

namespace cadre {
namespace {

using testing::ElementsAre;

// Rows of 0, 1, 2, ... in row-major order, and a view of them.
struct Counted {
  explicit Counted(std::initializer_list<std::int64_t> dims) : view(nullptr, DType::kF32, dims) {
    values.resize(static_cast<std::size_t>(view.elements()));
    std::iota(values.begin(), values.end(), 0.0f);
    view.data = values.data();
  }
  std::vector<float> values;
  View view;
};

// What the view shows, in its own row-major order. Written over a background that no element has, so that a copy of too
// few or too many elements shows.
std::vector<float> seen(const View& v) {
  std::vector<float> out(static_cast<std::size_t>(v.elements()) + 1, -7.0f);
  copy_dense(v, out.data());
  EXPECT_EQ(out.back(), -7.0f) << "copied past the end";
  out.pop_back();
  return out;
}

TEST(View, DenseByDefault) {
  const View v(nullptr, DType::kBF16, {2, 3, 5, 7});
  EXPECT_THAT(v.shape, ElementsAre(2, 3, 5, 7));
  EXPECT_THAT(v.stride, ElementsAre(105, 35, 7, 1));
  EXPECT_EQ(v.elements(), 210);
  EXPECT_EQ(v.bytes(), 420);
  EXPECT_TRUE(v.dense());
  EXPECT_TRUE(v.defined());
}

TEST(View, NothingIsUndefinedAndEmpty) {
  const View v;
  EXPECT_FALSE(v.defined());
  EXPECT_EQ(v.elements(), 0);
  EXPECT_EQ(v.bytes(), 0);
}

TEST(View, BytesOfEveryWidth) {
  EXPECT_EQ(View(nullptr, DType::kF64, {3}).bytes(), 24);
  EXPECT_EQ(View(nullptr, DType::kF32, {3}).bytes(), 12);
  EXPECT_EQ(View(nullptr, DType::kF16, {3}).bytes(), 6);
  EXPECT_EQ(View(nullptr, DType::kU8, {3}).bytes(), 3);
  EXPECT_EQ(View(nullptr, DType::kF4, {4}).bytes(), 2);
}

TEST(View, SliceOfRows) {
  const Counted m({4, 3});
  const View v = m.view.slice(0, 1, 3);
  EXPECT_THAT(seen(v), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_TRUE(v.dense());
}

TEST(View, SliceOfColumns) {
  const Counted m({3, 4});
  const View v = m.view.slice(1, 1, 3);
  EXPECT_THAT(seen(v), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_FALSE(v.dense());
  EXPECT_THAT(seen(v.slice(0, 1, 3).slice(1, 1, 2)), ElementsAre(6, 10));
}

TEST(View, OneRowOrOneColumnOfAStridedViewIsDense) {
  const Counted m({3, 4});
  EXPECT_TRUE(m.view.slice(1, 1, 3).slice(0, 2, 3).dense());
  EXPECT_FALSE(m.view.slice(1, 1, 2).dense());  // three elements, four apart
}

// A batch of no tokens is cut like any other.
TEST(View, EmptyViewsOfEveryKind) {
  const Counted m({3, 4});
  for (const View& v : {m.view.slice(0, 3, 3), m.view.slice(1, 2, 2), m.view.slice(1, 1, 3).slice(0, 0, 0),
                        m.view.transposed().slice(1, 0, 0)}) {
    EXPECT_EQ(v.elements(), 0) << v.describe();
    EXPECT_TRUE(v.dense()) << v.describe();
    EXPECT_TRUE(seen(v).empty()) << v.describe();
    EXPECT_EQ(v.reshaped({5, 0}).elements(), 0) << v.describe();
  }
}

// Views without memory are what the measuring pass works with.
TEST(View, WithoutMemory) {
  const View v = View(nullptr, DType::kF32, {4, 6}).slice(0, 1, 3).slice(1, 0, 4);
  EXPECT_EQ(v.describe(), "float32 [2, 4]");
  EXPECT_EQ(v.at(1).elements(), 4);
}

TEST(View, AtDropsTheFirstDimension) {
  const Counted m({2, 3, 4});
  const View v = m.view.at(1);
  EXPECT_EQ(v.describe(), "float32 [3, 4]");
  EXPECT_THAT(seen(v.at(2)), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(seen(m.view.slice(2, 1, 3).at(1).at(0)), ElementsAre(13, 14));
}

TEST(View, Transposed) {
  const Counted m({2, 3});
  const View v = m.view.transposed();
  EXPECT_EQ(v.describe(), "float32 [3, 2]");
  EXPECT_THAT(seen(v), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_FALSE(v.dense());
  EXPECT_THAT(seen(v.at(1)), ElementsAre(1, 4));  // a strided row
  EXPECT_THAT(seen(v.transposed()), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(View, Reshaped) {
  const Counted m({2, 6});
  const View v = m.view.reshaped({3, 2, 2});
  EXPECT_EQ(v.describe(), "float32 [3, 2, 2]");
  EXPECT_EQ(v.data, m.view.data);
  EXPECT_THAT(seen(v.at(1)), ElementsAre(4, 5, 6, 7));
}

TEST(View, SplitLastKeepsTheRows) {
  const Counted m({2, 8});
  const View v = m.view.slice(1, 2, 8).split_last(3);  // columns 2 to 7 as three heads of two
  EXPECT_EQ(v.describe(), "float32 [2, 3, 2]");
  EXPECT_THAT(seen(v), ElementsAre(2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(seen(v.slice(1, 1, 2)), ElementsAre(4, 5, 12, 13));
}

TEST(View, CopyOfEveryElementWidth) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const auto columns = [&](DType dtype, std::initializer_list<std::int64_t> dims) {
    const View v = View(const_cast<std::uint8_t*>(bytes.data()), dtype, dims).slice(1, 1, 2);
    std::vector<std::uint8_t> out(static_cast<std::size_t>(v.bytes()));
    copy_dense(v, out.data());
    return out;
  };
  EXPECT_THAT(columns(DType::kU8, {4, 4}), ElementsAre(2, 6, 10, 14));
  EXPECT_THAT(columns(DType::kBF16, {2, 4}), ElementsAre(3, 4, 11, 12));
  EXPECT_THAT(columns(DType::kI32, {2, 2}), ElementsAre(5, 6, 7, 8, 13, 14, 15, 16));
  EXPECT_THAT(columns(DType::kF64, {1, 2}), ElementsAre(9, 10, 11, 12, 13, 14, 15, 16));
}

TEST(View, CopyOfFourStridedDimensions) {
  const Counted m({2, 3, 2, 4});
  const View v = m.view.slice(1, 1, 3).slice(3, 1, 3);
  std::vector<float> want;
  for (int a = 0; a < 2; ++a) {
    for (int b = 1; b < 3; ++b) {
      for (int c = 0; c < 2; ++c) {
        for (int d = 1; d < 3; ++d) want.push_back(static_cast<float>(((a * 3 + b) * 2 + c) * 4 + d));
      }
    }
  }
  EXPECT_EQ(seen(v), want);
}

TEST(View, Describes) {
  EXPECT_EQ(View(nullptr, DType::kBF16, {128, 64}).describe(), "bfloat16 [128, 64]");
  EXPECT_EQ(View(nullptr, DType::kI32, {0}).describe(), "int32 [0]");
}

TEST(ViewDeathTest, MisuseIsCaught) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Counted m({3, 4});
  EXPECT_DEATH((void)m.view.slice(0, 1, 4), "slice outside the view");
  EXPECT_DEATH((void)m.view.slice(0, 2, 1), "slice outside the view");
  EXPECT_DEATH((void)m.view.slice(2, 0, 0), "slice outside the view");
  EXPECT_DEATH((void)m.view.at(3), "slice outside the view");
  EXPECT_DEATH((void)m.view.slice(1, 0, 2).reshaped({6}), "only a dense view is reshaped");
  EXPECT_DEATH((void)m.view.reshaped({11}), "keeps the number of elements");
  EXPECT_DEATH((void)m.view.split_last(3), "cannot split");
  EXPECT_DEATH((void)m.view.at(0).transposed(), "only a matrix");
}

}  // namespace
}  // namespace cadre
