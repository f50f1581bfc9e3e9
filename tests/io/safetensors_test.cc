#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre {
namespace {

// A file with this header, however wrong, and data_bytes bytes 0, 1, 2, ...
std::string file_text(std::string_view header, std::size_t data_bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  text += header;
  for (std::size_t i = 0; i < data_bytes; ++i) text += static_cast<char>(i);
  return text;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Status parse_status(std::string_view header, std::size_t data_bytes) {
  return parse_safetensors(bytes_of(file_text(header, data_bytes)), "m.safetensors").status();
}

TEST(Safetensors, ReadsEveryKindOfTensor) {
  TempDir dir;
  const auto path = dir.write("m.safetensors", file_text(R"({"__metadata__":{"format":"pt"},
      "b":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},
      "scalar":{"dtype":"I16","shape":[],"data_offsets":[2,4]},
      "a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},
      "none":{"dtype":"F16","shape":[3,0,5],"data_offsets":[4,4]},
      "huge_none":{"dtype":"F16","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[20,20]},
      "four":{"dtype":"F4","shape":[4],"data_offsets":[20,22]},
      "six":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[22,25]}}   )",
                                                         25));
  const auto file = SafetensorsFile::open(path);
  ASSERT_THAT(file, Succeeds());
  std::vector<std::string> order;
  for (const TensorInfo& tensor : (*file)->tensors()) order.push_back(tensor.name);
  EXPECT_EQ(order, (std::vector<std::string>{"a", "scalar", "none", "b", "huge_none", "four", "six"}));
  EXPECT_EQ((*file)->metadata(), (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  EXPECT_EQ((*file)->path(), path.string());

  const TensorInfo* b = (*file)->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kF32);
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(b->nbytes, 16u);
  EXPECT_EQ(b->elements(), 4);
  EXPECT_EQ(*b->file, path.string());
  EXPECT_EQ(std::to_integer<int>(b->data[0]), 4);
  EXPECT_EQ(describe(*b), "F32 [2, 2]");
  EXPECT_EQ((*file)->find("scalar")->elements(), 1);
  EXPECT_EQ((*file)->find("none")->elements(), 0);
  EXPECT_EQ((*file)->find("huge_none")->elements(), 0);
  EXPECT_EQ((*file)->find("six")->elements(), 4);
  EXPECT_EQ((*file)->find("missing"), nullptr);
  EXPECT_EQ((*file)->find("__metadata__"), nullptr);
  (*file)->drop_pages(*b);
  EXPECT_EQ(std::to_integer<int>(b->data[15]), 19);
}

TEST(Safetensors, NoTensors) {
  EXPECT_THAT(parse_status("{}", 0), Succeeds());
  EXPECT_THAT(parse_status(R"({"__metadata__":{}})", 0), Succeeds());
  EXPECT_THAT(parse_status("{}", 1), FailsWith(Code::kInvalidFile, "the last 1 bytes of the data belong to no tensor"));
}

TEST(Safetensors, Alignment) {
  const char* padded = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";
  const char* odd = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )";
  for (const char* header : {padded, odd}) {
    std::string text = file_text(header, 4);
    std::vector<std::uint64_t> aligned(text.size() / 8 + 1);  // as a map would be
    std::memcpy(aligned.data(), text.data(), text.size());
    const auto parsed =
        parse_safetensors({reinterpret_cast<const std::byte*>(aligned.data()), text.size()}, "m.safetensors");
    ASSERT_THAT(parsed, Succeeds());
    EXPECT_EQ(parsed->tensors[0].is_aligned(), (std::strlen(header) % 4) == 0) << header;
  }
}

TEST(Safetensors, RefusedAsAWhole) {
  TempDir dir;
  const auto open_text = [&](std::string_view text) {
    const auto file = SafetensorsFile::open(dir.write("m.safetensors", text));
    return file.status();
  };
  EXPECT_THAT(SafetensorsFile::open(dir / "absent.safetensors"), FailsWith(Code::kNotFound, "absent.safetensors"));
  EXPECT_THAT(open_text(""), FailsWith(Code::kInvalidFile, "is empty"));
  EXPECT_THAT(open_text("1234567"), FailsWith(Code::kInvalidFile, "has 7 bytes, a safetensors file has at least 8"));
  EXPECT_THAT(open_text(std::string(7, '\xff') + "\x7f"), FailsWith(Code::kInvalidFile, "want at most 100000000"));
  EXPECT_THAT(open_text(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)),
              FailsWith(Code::kInvalidFile, "header length is 100000001, want at most"));
  EXPECT_THAT(open_text(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
              FailsWith(Code::kInvalidFile, "header length is 3 and only 2 bytes follow"));
  EXPECT_THAT(open_text(std::string(8, '\0')), FailsWith(Code::kInvalidFile, "does not start with '{'"));
  EXPECT_THAT(open_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
              FailsWith(Code::kInvalidFile, "run 'git lfs pull'"));
  EXPECT_THAT(open_text(file_text("[]", 0)), FailsWith(Code::kInvalidFile, "does not start with '{'"));
  EXPECT_THAT(open_text(file_text(" {}", 0)), FailsWith(Code::kInvalidFile, "does not start with '{'"));
  EXPECT_THAT(open_text(file_text("{", 0)), FailsWith(Code::kInvalidFile, "m.safetensors: header: line 1, column 2"));
  EXPECT_THAT(open_text(file_text("{}x", 0)), FailsWith(Code::kInvalidFile, "after the end of the JSON value"));
  EXPECT_THAT(open_text(file_text("{\"a\":[[[[[1]]]]]}", 0)), FailsWith(Code::kLimitExceeded, "nested more than"));
}

TEST(Safetensors, RefusedEntries) {
  const std::tuple<const char*, std::size_t, const char*> cases[] = {
      {R"({"a":1})", 0, "m.safetensors: tensor \"a\" is 1, want an object"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "has the key \"a\" twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "has the key \"dtype\" twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "tensor \"a\" has an unknown key \"x\""},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "has no 'dtype'"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "has no 'shape'"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "has no 'data_offsets'"},
      {R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype that is 8, want a string"},
      {R"({"a":{"dtype":"Q4_K","shape":[1],"data_offsets":[0,1]}})", 1,
       "has dtype \"Q4_K\", which is not a safetensors type"},
      {R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "shape that is 1, want an array"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "has -1 in its shape"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "has 1.0 in its shape"},
      {R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, "has \"1\" in its shape"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1, "in its shape"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
       1, "has 33 dimensions, want at most 32"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "has shape [4294967296, 4294967296], which overflows"},
      {R"({"a":{"dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "which overflows"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "has data_offsets [0], want two integers"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1, "want two integers [begin, end]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":7}})", 1, "has data_offsets 7"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "has data_offsets [-1, 0]"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "begins at 1 and ends before, at 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "ends at byte 2 of the data, which has 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775807]}})", 1,
       "ends at byte 9223372036854775807"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2]}})", 2, "(F32 [1]) has 2 bytes of data, want 4"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,1]}})", 1, "has 1 bytes of data, want 0"},
      {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,0]}})", 0, "has 0 bytes of data, want 1"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "(F4 [3]) ends inside a byte"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "1 bytes of the data before tensor \"a\""},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "1 bytes of the data before tensor \"b\" belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensors \"a\" and \"b\" overlap at byte 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "overlap at byte 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2, "overlap at byte 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
       "the last 1 bytes of the data belong to no tensor"},
      {R"({"__metadata__":1})", 0, "'__metadata__' is 1, want an object of strings"},
      {R"({"__metadata__":{"x":1}})", 0, "'__metadata__' field \"x\" is 1, want a string"},
      {R"({"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}})", 1, "'NaN' is not a JSON value"},
  };
  for (const auto& [header, data_bytes, phrase] : cases) {
    EXPECT_THAT(parse_status(header, data_bytes), FailsWith(Code::kInvalidFile, phrase)) << header;
  }
}

TEST(DTypes, NamesAndSizes) {
  for (const internal::DTypeInfo& info : internal::kDTypes) {
    EXPECT_EQ(dtype_from_safetensors(info.safetensors_name), info.dtype);
    EXPECT_EQ(dtype_safetensors_name(info.dtype), info.safetensors_name);
  }
  EXPECT_EQ(dtype_from_safetensors("bf16"), std::nullopt);
  EXPECT_EQ(dtype_name(DType::kBF16), "bfloat16");
  EXPECT_EQ(dtype_bits(DType::kF8E4M3), 8);
  EXPECT_TRUE(is_float_weight(DType::kBF16));
  EXPECT_FALSE(is_float_weight(DType::kF8E4M3));
  EXPECT_FALSE(is_float_weight(DType::kF64));
}

TEST(SafetensorsWrite, ReadsBack) {
  TempDir dir;
  const std::string data = "0123456789abcdef";
  const std::vector<NamedTensor> tensors = {
      {"byte", DType::kU8, {3}, bytes_of(data).subspan(0, 3)},
      {"float", DType::kF32, {2, 1}, bytes_of(data).subspan(4, 8)},
      {"none", DType::kF32, {0, 7}, {}},
      {"scalar", DType::kI64, {}, bytes_of(data).subspan(8, 8)},
      {"half \"quoted\"", DType::kBF16, {1}, bytes_of(data).subspan(0, 2)},
  };
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  const auto path = dir.write("out.safetensors", "something older");
  ASSERT_THAT(write_safetensors(path, tensors, metadata), Succeeds());
  const auto file = SafetensorsFile::open(path);
  ASSERT_THAT(file, Succeeds());
  EXPECT_EQ((*file)->tensors().size(), tensors.size());
  EXPECT_EQ((*file)->metadata(), metadata);
  for (const NamedTensor& tensor : tensors) {
    const TensorInfo* read = (*file)->find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_TRUE(read->is_aligned()) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(read->bytes(), tensor.data)) << tensor.name;
  }
  // Nothing else is left behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(SafetensorsWrite, Refusals) {
  TempDir dir;
  const std::string data = "0123";
  const auto path = dir / "out.safetensors";
  const auto written = [&](std::vector<NamedTensor> tensors) { return write_safetensors(path, tensors); };
  EXPECT_THAT(written({{"a", DType::kF32, {2}, bytes_of(data)}}),
              FailsWith(Code::kInvalidArgument, "tensor 'a' has 4 bytes of data, want 64 bits for F32 [2]"));
  EXPECT_THAT(written({{"a", DType::kF32, {-1}, bytes_of(data)}}), FailsWith(Code::kInvalidArgument, "not a size"));
  EXPECT_THAT(written({{"a", DType::kF32, {1}, bytes_of(data)}, {"a", DType::kF32, {1}, bytes_of(data)}}),
              FailsWith(Code::kInvalidArgument, "tensor 'a' is given twice"));
  EXPECT_THAT(written({{"__metadata__", DType::kF32, {1}, bytes_of(data)}}),
              FailsWith(Code::kInvalidArgument, "reserves"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(write_safetensors(dir / "no/such/folder.safetensors", {}),
              FailsWith(Code::kNotFound, "folder.safetensors"));
  std::filesystem::create_directory(path);
  EXPECT_THAT(write_safetensors(path, {}), FailsWith(Code::kInvalidArgument, "Is a directory"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

}  // namespace
}  // namespace cadre
