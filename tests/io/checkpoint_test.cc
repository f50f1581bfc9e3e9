#include "io/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/float16.h"
#include "io/json.h"
#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre {
namespace {

// A file whose tensors each hold one byte: the given ones.
void write_shard(const std::filesystem::path& path, const std::vector<std::pair<std::string, int>>& tensors) {
  std::vector<std::byte> data;
  for (const auto& tensor : tensors) data.push_back(static_cast<std::byte>(tensor.second));
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    named.push_back({tensors[i].first, DType::kU8, {1}, std::span<const std::byte>(data).subspan(i, 1)});
  }
  ASSERT_THAT(write_safetensors(path, named), Succeeds());
}

int byte_of(const Checkpoint& checkpoint, std::string_view name) {
  const TensorInfo* tensor = checkpoint.find(name);
  return tensor == nullptr ? -1 : std::to_integer<int>(tensor->data[0]);
}

void write_index(const TempDir& dir, std::string_view weight_map) {
  dir.write("model.safetensors.index.json",
            R"({"metadata": {"total_size": 3}, "weight_map": )" + std::string(weight_map) + "}");
}

TEST(Checkpoint, SingleFile) {
  TempDir dir;
  write_shard(dir / "model.safetensors", {{"b", 2}, {"a", 1}});
  write_shard(dir / "consolidated.safetensors", {{"other", 3}});
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_THAT(checkpoint, Succeeds());
  EXPECT_EQ((*checkpoint)->names(), (std::vector<std::string_view>{"a", "b"}));
  EXPECT_EQ((*checkpoint)->tensor_count(), 2u);
  EXPECT_EQ((*checkpoint)->tensor_bytes(), 2u);
  EXPECT_EQ((*checkpoint)->files().size(), 1u);
  EXPECT_EQ((*checkpoint)->folder(), dir.path().string());
  EXPECT_EQ(byte_of(**checkpoint, "a"), 1);
  EXPECT_EQ(byte_of(**checkpoint, "b"), 2);
  EXPECT_EQ((*checkpoint)->find("c"), nullptr);
  (*checkpoint)->drop_pages(*(*checkpoint)->find("a"));
  EXPECT_EQ(byte_of(**checkpoint, "a"), 1);
}

TEST(Checkpoint, OneFileOfAnotherName) {
  TempDir dir;
  write_shard(dir / "weights.safetensors", {{"a", 1}});
  write_shard(dir / "adapter_model.safetensors", {{"lora", 1}});
  dir.write("pytorch_model.bin", "x");
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_THAT(checkpoint, Succeeds());
  EXPECT_EQ((*checkpoint)->names(), (std::vector<std::string_view>{"a"}));
}

TEST(Checkpoint, Shards) {
  TempDir dir;
  write_shard(dir / "s1.safetensors", {{"a", 1}, {"extra", 9}});
  write_shard(dir / "s2.safetensors", {{"b", 2}, {"c", 3}});
  write_index(dir, R"({"a": "s1.safetensors", "b": "s2.safetensors", "c": "s2.safetensors"})");
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_THAT(checkpoint, Succeeds());
  EXPECT_EQ((*checkpoint)->names(), (std::vector<std::string_view>{"a", "b", "c", "extra"}));
  EXPECT_EQ((*checkpoint)->tensor_bytes(), 4u);
  EXPECT_EQ((*checkpoint)->unlisted(), (std::vector<std::string>{"extra"}));
  EXPECT_EQ(byte_of(**checkpoint, "c"), 3);
  EXPECT_EQ(byte_of(**checkpoint, "extra"), 9);
}

// Downloads of Hugging Face are links into a store of blobs.
TEST(Checkpoint, LinkedFiles) {
  TempDir dir;
  write_shard(dir / "blob", {{"a", 1}});
  std::filesystem::create_directory(dir / "snapshot");
  std::filesystem::create_symlink("../blob", dir / "snapshot/model.safetensors");
  EXPECT_THAT(Checkpoint::open(dir / "snapshot"), Succeeds());
  std::filesystem::remove(dir / "blob");
  EXPECT_THAT(Checkpoint::open(dir / "snapshot"), FailsWith(Code::kNotFound, "snapshot/model.safetensors"));
}

TEST(Checkpoint, RefusedIndexes) {
  TempDir dir;
  write_shard(dir / "s1.safetensors", {{"a", 1}, {"twice", 1}});
  write_shard(dir / "s2.safetensors", {{"b", 2}, {"twice", 2}});
  const auto refused = [&](std::string_view weight_map) {
    write_index(dir, weight_map);
    return Checkpoint::open(dir.path()).status();
  };
  EXPECT_THAT(refused(R"({"a": "s1.safetensors", "b": "gone.safetensors", "c": "gone.safetensors"})"),
              FailsWith(Code::kNotFound, "shard 'gone.safetensors' is missing, which should hold 2 of 3 tensors"));
  EXPECT_THAT(refused(R"({"a": "x1.safetensors", "b": "x2.safetensors", "c": "s1.safetensors"})"),
              FailsWith(Code::kNotFound, "shards 'x1.safetensors' and 'x2.safetensors' are missing"));
  EXPECT_THAT(refused(R"({"a": "s1.safetensors", "x": "s1.safetensors", "y": "s1.safetensors"})"),
              FailsWith(Code::kInvalidFile,
                        "s1.safetensors: lacks 2 of the 3 tensors that the index lists for it: 'x' and 'y'"));
  EXPECT_THAT(refused(R"({"a": "s1.safetensors", "b": "s2.safetensors"})"),
              FailsWith(Code::kInvalidFile, "tensor 'twice' is in both"));
  for (const char* name : {"../s1.safetensors", "/s1.safetensors", "..", ".", "", "sub/s1.safetensors",
                           "sub\\\\s1.safetensors", "s1\\u0000.safetensors"}) {
    EXPECT_THAT(refused(std::string(R"({"a": ")") + name + "\"}"),
                FailsWith(Code::kInvalidFile, "field 'weight_map.a' is \""))
        << name;
    EXPECT_THAT(refused(std::string(R"({"a": ")") + name + "\"}"),
                FailsWith(Code::kInvalidFile, "want the plain name"));
  }
  EXPECT_THAT(refused(R"({"a": "pytorch_model-1.bin"})"), FailsWith(Code::kUnsupported, "want a safetensors file"));
  EXPECT_THAT(refused(R"({"a": 1})"), FailsWith(Code::kInvalidFile, "field 'weight_map.a' is 1, want a string"));
  EXPECT_THAT(refused("{}"), FailsWith(Code::kInvalidFile, "'weight_map' is empty"));
  EXPECT_THAT(refused("[]"), FailsWith(Code::kInvalidFile, "field 'weight_map' is an array, want an object"));
  dir.write("model.safetensors.index.json", "{}");
  EXPECT_THAT(Checkpoint::open(dir.path()), FailsWith(Code::kInvalidFile, "field 'weight_map' is missing"));
  dir.write("model.safetensors.index.json", "{");
  EXPECT_THAT(Checkpoint::open(dir.path()), FailsWith(Code::kInvalidFile, "index.json: line 1"));
}

TEST(Checkpoint, RefusedShards) {
  TempDir dir;
  write_index(dir, R"({"a": "s1.safetensors"})");
  dir.write("s1.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(Checkpoint::open(dir.path()), FailsWith(Code::kInvalidFile, "git lfs pull"));
  dir.write("s1.safetensors", "");
  EXPECT_THAT(Checkpoint::open(dir.path()), FailsWith(Code::kInvalidFile, "s1.safetensors' is empty"));
}

TEST(Checkpoint, RefusedFolders) {
  TempDir dir;
  EXPECT_THAT(Checkpoint::open(dir / "absent"), FailsWith(Code::kNotFound, "absent' does not exist"));
  EXPECT_THAT(Checkpoint::open(dir.write("file", "x")),
              FailsWith(Code::kInvalidArgument, "is a file, want the folder"));
  EXPECT_THAT(Checkpoint::open(dir.path()), FailsWith(Code::kNotFound, "has no model.safetensors"));

  dir.write("pickle/pytorch_model.bin", "x");
  EXPECT_THAT(Checkpoint::open(dir / "pickle"), FailsWith(Code::kUnsupported, "'pytorch_model.bin'; only safetensors"));
  EXPECT_THAT(Checkpoint::open(dir / "pickle"), FailsWith(Code::kUnsupported, "save_pretrained"));
  dir.write("meta/consolidated.00.pth", "x");
  EXPECT_THAT(Checkpoint::open(dir / "meta"), FailsWith(Code::kUnsupported, "'consolidated.00.pth'"));
  for (int i = 0; i < 6; ++i) dir.write("many/consolidated.0" + std::to_string(i) + ".pt", "x");
  EXPECT_THAT(Checkpoint::open(dir / "many"), FailsWith(Code::kUnsupported, "'consolidated.03.pt' and 2 more"));

  dir.write("adapter/adapter_model.safetensors", "x");
  EXPECT_THAT(Checkpoint::open(dir / "adapter"), FailsWith(Code::kInvalidArgument, "holds an adapter"));

  write_shard(dir.write("two/a.safetensors", ""), {{"a", 1}});
  write_shard(dir / "two/b.safetensors", {{"b", 1}});
  EXPECT_THAT(Checkpoint::open(dir / "two"),
              FailsWith(Code::kInvalidFile, "holds 2 safetensors files ('a.safetensors' and 'b.safetensors') and no "));
}

// Every checkpoint of the goldens opens, and its float tensors hold finite numbers.
TEST(Checkpoint, Goldens) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CADRE_GOLDENS "/models")) {
    ++models;
    const auto checkpoint = Checkpoint::open(entry.path());
    ASSERT_THAT(checkpoint, Succeeds());
    EXPECT_GT((*checkpoint)->tensor_count(), 10u) << entry.path();
    EXPECT_TRUE((*checkpoint)->unlisted().empty());
    std::uint64_t bytes = 0;
    for (const std::string_view name : (*checkpoint)->names()) {
      const TensorInfo* tensor = (*checkpoint)->find(name);
      ASSERT_NE(tensor, nullptr);
      bytes += tensor->nbytes;
      EXPECT_TRUE(tensor->is_aligned()) << entry.path() << " " << name;
      ASSERT_EQ(tensor->nbytes * 8, static_cast<std::uint64_t>(tensor->elements() * dtype_bits(tensor->dtype)));
      for (std::int64_t i = 0; i < tensor->elements(); ++i) {
        float value = 0;
        if (tensor->dtype == DType::kF32) {
          std::memcpy(&value, tensor->data + i * 4, 4);
        } else if (tensor->dtype == DType::kBF16) {
          Bf16 half{};
          std::memcpy(&half, tensor->data + i * 2, 2);
          value = to_float(half);
        } else {
          break;
        }
        ASSERT_LT(std::abs(value), 1e6f) << entry.path() << " " << name << " element " << i;
      }
    }
    EXPECT_EQ(bytes, (*checkpoint)->tensor_bytes());
    EXPECT_THAT(Json::parse_file((entry.path() / "config.json").string()), Succeeds());
  }
  EXPECT_GT(models, 20);
}

// Adapters, expected results and every JSON file of the goldens are readable, too.
TEST(Goldens, EveryFileReads) {
  int safetensors = 0;
  int json = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CADRE_GOLDENS)) {
    if (entry.path().extension() == ".safetensors") {
      ++safetensors;
      EXPECT_THAT(SafetensorsFile::open(entry.path()), Succeeds());
    } else if (entry.path().extension() == ".json") {
      ++json;
      const auto parsed = Json::parse_file(entry.path().string());
      EXPECT_THAT(parsed, Succeeds());
      // What we write is what we read.
      if (parsed.ok()) {
        const std::string text = parsed->dump({.non_finite = JsonDumpOptions::NonFinite::kPython});
        const auto again = Json::parse(text, "dump");
        ASSERT_THAT(again, Succeeds());
        EXPECT_TRUE(again->dump({.non_finite = JsonDumpOptions::NonFinite::kPython}) == text) << entry.path();
      }
    }
  }
  EXPECT_GT(safetensors, 50);
  EXPECT_GT(json, 50);
}

}  // namespace
}  // namespace cadre
