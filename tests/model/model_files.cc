#include "model/model_files.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <set>

#include "base/dot.h"
#include "base/float16.h"
#include "support/exec_fixture.h"
#include "support/status_matchers.h"

namespace cadre::test {

namespace fs = std::filesystem;

namespace {

std::vector<NamedTensor> named(const std::map<std::string, HostTensor>& tensors) {
  std::vector<NamedTensor> out;
  for (const auto& [name, tensor] : tensors) out.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  return out;
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  EXPECT_TRUE(out.good()) << file;
}

std::string file_dtype(DType dtype) { return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16"; }

}  // namespace

std::vector<float> HostTensor::values() const {
  std::vector<float> out;
  const std::size_t count = bytes.size() * 8 / static_cast<std::size_t>(dtype_bits(dtype));
  for (std::size_t i = 0; i < count; ++i) out.push_back(element(bytes.data(), dtype, static_cast<std::int64_t>(i)));
  return out;
}

ModelFiles ModelFiles::read(const fs::path& dir) {
  ModelFiles files;
  auto config = Json::parse_file((dir / "config.json").string());
  EXPECT_THAT(config, Succeeds());
  if (config.ok()) files.config = *config;
  const auto weights = SafetensorsFile::open(dir / "model.safetensors");
  EXPECT_THAT(weights, Succeeds());
  if (!weights.ok()) return files;
  for (const TensorInfo& t : (*weights)->tensors()) {
    files.tensors[t.name] = {t.dtype, t.shape, {t.bytes().begin(), t.bytes().end()}};
  }
  return files;
}

void ModelFiles::set(const std::string& key, Json value) {
  std::vector<Json::Member> members(config.members().begin(), config.members().end());
  members.emplace_back(key, std::move(value));
  config = Json::object(std::move(members));
}

void ModelFiles::remove(const std::string& key) {
  std::vector<Json::Member> members;
  for (const Json::Member& member : config.members()) {
    if (member.first != key) members.push_back(member);
  }
  config = Json::object(std::move(members));
}

void ModelFiles::write_config(const fs::path& dir) const {
  fs::create_directories(dir);
  write_text(dir / "config.json", config.dump({.indent = 2, .non_finite = JsonDumpOptions::NonFinite::kPython}));
}

void ModelFiles::write_weights(const fs::path& file) const {
  EXPECT_THAT(write_safetensors(file, named(tensors)), Succeeds());
}

void ModelFiles::write(const fs::path& dir) const {
  write_config(dir);
  write_weights(dir / "model.safetensors");
}

void ModelFiles::write_shards(const fs::path& dir, int shards) const {
  write_config(dir);
  std::vector<std::map<std::string, HostTensor>> parts(static_cast<std::size_t>(shards));
  std::vector<Json::Member> weight_map;
  const auto shard_name = [&](std::size_t i) {
    return "model-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(shards) + ".safetensors";
  };
  std::size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t shard = at++ % parts.size();
    parts[shard].emplace(name, tensor);
    weight_map.emplace_back(name, Json(shard_name(shard)));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_THAT(write_safetensors(dir / shard_name(i), named(parts[i])), Succeeds());
  }
  write_text(
      dir / "model.safetensors.index.json",
      Json::object({{"metadata", Json::object({})}, {"weight_map", Json::object(std::move(weight_map))}}).dump());
}

HostTensor converted(const HostTensor& tensor, DType dtype) {
  HostTensor out{dtype, tensor.shape, to_bytes(dtype, tensor.values())};
  EXPECT_EQ(out.values(), tensor.values()) << "the conversion is not exact";
  return out;
}

void stack_experts(ModelFiles& files, const std::vector<std::string>& up_parts, const std::string& down,
                   const std::string& stacked_up, const std::string& stacked_down) {
  std::set<std::string> modules;
  for (const auto& [name, tensor] : files.tensors) {
    if (const std::size_t at = name.find(".experts."); at != std::string::npos) modules.insert(name.substr(0, at + 8));
  }
  EXPECT_FALSE(modules.empty());
  for (const std::string& module : modules) {
    const auto stack = [&](const std::vector<std::string>& parts, const std::string& to) {
      HostTensor out;
      std::int64_t experts = 0;
      for (;; ++experts) {
        const std::string prefix = module + "." + std::to_string(experts) + ".";
        if (!files.tensors.contains(prefix + parts[0] + ".weight")) break;
        std::int64_t rows = 0;
        for (const std::string& part : parts) {
          const auto node = files.tensors.extract(prefix + part + ".weight");
          ASSERT_FALSE(node.empty()) << prefix << part;
          const HostTensor& matrix = node.mapped();
          rows += matrix.shape[0];
          out.dtype = matrix.dtype;
          out.shape = {0, rows, matrix.shape[1]};
          out.bytes.insert(out.bytes.end(), matrix.bytes.begin(), matrix.bytes.end());
        }
      }
      ASSERT_GT(experts, 0) << module;
      out.shape[0] = experts;
      files.tensors[module + "." + to] = std::move(out);
    };
    stack(up_parts, stacked_up);
    stack({down}, stacked_down);
  }
}

void erase_tensors(ModelFiles& files, const std::string& part) {
  std::erase_if(files.tensors, [&](const auto& entry) { return entry.first.find(part) != std::string::npos; });
}

void rename_tensors(ModelFiles& files, const std::string& from, const std::string& to) {
  std::map<std::string, HostTensor> renamed;
  for (auto& [name, tensor] : files.tensors) {
    std::string other = name;
    if (const std::size_t at = other.find(from); at != std::string::npos) other.replace(at, from.size(), to);
    renamed.emplace(other, std::move(tensor));
  }
  files.tensors = std::move(renamed);
}

void write_misaligned(const ModelFiles& files, const fs::path& file) {
  std::vector<Json::Member> header;
  std::string data;
  for (const auto& [name, tensor] : files.tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    header.emplace_back(name, Json::object({{"dtype", Json(file_dtype(tensor.dtype))},
                                            {"shape", Json::array(tensor.shape)},
                                            {"data_offsets", Json::array({Json(begin), Json(data.size())})}}));
  }
  std::string text = Json::object(std::move(header)).dump();
  if (text.size() % 2 == 0) text += ' ';
  const std::uint64_t size = text.size();
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(size >> (8 * i) & 0xff);
  write_text(file, length + text + data);
}

}  // namespace cadre::test
