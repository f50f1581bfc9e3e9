// Checkpoints and adapters that are damaged, incomplete or of something else: each refused with its code and with what
// the user needs to find the fault.
#include <gtest/gtest.h>

#include <cstring>

#include "base/float16.h"
#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<Model>> load(const fs::path& dir, bool check_weights = false, const Ranks& ranks = {}) {
  ModelOptions options;
  options.dir = dir;
  options.device = make_cpu_device();
  options.ranks = ranks;
  options.check_weights = check_weights;
  return Model::load(options);
}

class BadCheckpoint : public testing::Test {
 protected:
  void write() { files_.write(dir_.path()); }
  ModelFiles files_ = ModelFiles::read(golden_dir("qwen3_moe"));
  TempDir dir_;
};

const std::string kQProj = "model.layers.1.self_attn.q_proj.weight";
const std::string kExpert = "model.layers.1.mlp.experts.5.up_proj.weight";

TEST_F(BadCheckpoint, Unchanged) {
  write();
  EXPECT_THAT(load(dir_.path(), true), Succeeds());
}

TEST_F(BadCheckpoint, NoFolderAndNoConfig) {
  EXPECT_THAT(load(dir_ / "absent"), FailsWith(Code::kNotFound, "absent/config.json"));
  files_.write_weights(dir_ / "model.safetensors");
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kNotFound, "config.json"));
}

TEST_F(BadCheckpoint, Truncated) {
  write();
  const auto size = fs::file_size(dir_ / "model.safetensors");
  for (const std::uintmax_t keep : {size - 1, size / 2, std::uintmax_t{100}, std::uintmax_t{4}, std::uintmax_t{0}}) {
    fs::resize_file(dir_ / "model.safetensors", keep);
    EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "model.safetensors")) << keep;
  }
}

TEST_F(BadCheckpoint, MissingShard) {
  files_.write_shards(dir_.path(), 3);
  EXPECT_THAT(load(dir_.path()), Succeeds());
  fs::remove(dir_ / "model-00002-of-00003.safetensors");
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kNotFound, "shard 'model-00002-of-00003.safetensors' is missing"));
}

TEST_F(BadCheckpoint, ShardOfAnotherModel) {
  files_.write_shards(dir_.path(), 3);
  fs::copy_file(dir_ / "model-00001-of-00003.safetensors", dir_ / "model-00002-of-00003.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "model-00002-of-00003.safetensors"));
}

TEST_F(BadCheckpoint, MissingTensor) {
  for (const std::string& name : {kQProj, kExpert, std::string("lm_head.weight"), std::string("model.norm.weight"),
                                  std::string("model.layers.0.mlp.gate.weight")}) {
    const HostTensor kept = files_.tensors.extract(name).mapped();
    write();
    EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "tensor '" + name + "' is missing"));
    files_.tensors[name] = kept;
  }
}

TEST_F(BadCheckpoint, ExtraTensor) {
  files_.tensors["model.layers.2.self_attn.q_proj.weight"] = files_.tensors[kQProj];
  files_.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      DType::kF32, {8}, std::vector<std::byte>(32)};  // derived: known and not read
  write();
  EXPECT_THAT(load(dir_.path()),
              FailsWith(Code::kInvalidFile, "1 tensors of the checkpoint have no place in the model"));
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "model.layers.2.self_attn.q_proj.weight"));
}

// A config that asks for less than the file holds: nothing is dropped in silence.
TEST_F(BadCheckpoint, FewerLayersOrExpertsThanTheFile) {
  files_.set("num_hidden_layers", 1);
  write();
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "have no place in the model"));
}

TEST_F(BadCheckpoint, WrongShape) {
  for (const std::string& name : {kQProj, kExpert, std::string("model.embed_tokens.weight")}) {
    HostTensor& tensor = files_.tensors[name];
    std::swap(tensor.shape[0], tensor.shape[1]);
    const bool square = tensor.shape[0] == tensor.shape[1];
    if (square) tensor.shape = {tensor.shape[0] * tensor.shape[1]};
    write();
    EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "tensor '" + name + "' has shape ["));
    EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "by config.json"));
    files_ = ModelFiles::read(golden_dir("qwen3_moe"));
  }
}

TEST_F(BadCheckpoint, QuantisedTensor) {
  HostTensor& tensor = files_.tensors[kExpert];
  tensor.dtype = DType::kF8E4M3;
  tensor.bytes.resize(tensor.bytes.size() / 2);
  write();
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, kExpert));
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "is float8_e4m3"));
}

TEST_F(BadCheckpoint, IntegerTensor) {
  HostTensor& tensor = files_.tensors[kQProj];
  tensor.dtype = DType::kI32;
  tensor.bytes.resize(tensor.bytes.size() * 2);
  write();
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "'" + kQProj + "' is int32"));
}

TEST_F(BadCheckpoint, ExpertsOfTwoTypesInOneLayer) {
  files_.tensors[kExpert] = converted(files_.tensors[kExpert], DType::kF32);
  write();
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "'" + kExpert + "' is float32 and '"));
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "want one type for all experts of a layer"));
}

TEST_F(BadCheckpoint, QuantisationByName) {
  files_.set("quantization_config", Json::object({{"quant_method", "awq"}, {"bits", 4}}));
  write();
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "quant_method 'awq'"));
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "unquantised export"));
}

TEST_F(BadCheckpoint, NotFiniteIsFoundWithCheckWeights) {
  const std::uint16_t nan = 0x7fc0, infinity = 0xff80;
  for (const auto& [name, bits] : {std::pair{kExpert, nan}, std::pair{kQProj, infinity}, {"lm_head.weight", nan}}) {
    files_ = ModelFiles::read(golden_dir("qwen3_moe"));
    std::memcpy(files_.tensors[name].bytes.data() + 14, &bits, 2);
    write();
    EXPECT_THAT(load(dir_.path(), true),
                FailsWith(Code::kInvalidFile, "'" + std::string(name) + "' is not finite at element 7"));
    EXPECT_THAT(load(dir_.path()), Succeeds());  // reads no element
  }
  // A head that the config says is tied is looked at too.
  files_.set("tie_word_embeddings", true);
  write();
  EXPECT_THAT(load(dir_.path(), true), FailsWith(Code::kInvalidFile, "'lm_head.weight' is not finite at element 7"));
}

TEST_F(BadCheckpoint, PickleOnly) {
  files_.write_config(dir_.path());
  dir_.write("pytorch_model.bin", "not looked at");
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "pytorch_model.bin"));
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kUnsupported, "only safetensors files are read"));
}

TEST_F(BadCheckpoint, ConfigIsNoObjectOrNoJson) {
  write();
  dir_.write("config.json", "[1, 2]");
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "want an object"));
  dir_.write("config.json", "{\"model_type\": ");
  EXPECT_THAT(load(dir_.path()), FailsWith(Code::kInvalidFile, "config.json"));
}

// ---- ranks ------------------------------------------------------------------------------------------------------

TEST(BadRanks, SizesThatDoNotDivide) {
  EXPECT_THAT(load(golden_dir("qwen3_moe"), false, {.rank = 0, .size = 3}),
              FailsWith(Code::kUnsupported, "num_attention_heads is 4, which cannot be divided over 3 ranks"));
  EXPECT_THAT(load(golden_dir("qwen3_moe"), false, {.rank = 0, .size = 4}),
              FailsWith(Code::kUnsupported, "num_key_value_heads is 2, which cannot be divided over 4 ranks"));
  EXPECT_THAT(load(golden_dir("qwen3_moe"), false, {.rank = 0, .size = 4, .expert_parallel = true}),
              FailsWith(Code::kUnsupported, "use a tensor parallel size that divides it"));
  EXPECT_THAT(load(golden_dir("nemotron_h"), false, {.rank = 2, .size = 3}),
              FailsWith(Code::kUnsupported, "cannot be divided over 3 ranks"));
  EXPECT_THAT(load(golden_dir("olmoe"), false, {.rank = 1, .size = 2}), FailsWith(Code::kUnsupported, "use one rank"));
}

// ---- adapters ---------------------------------------------------------------------------------------------------

Result<GoldenModel> with_adapter(const std::string& model, const fs::path& adapter) {
  return open_golden({.model_dir = golden_dir(model), .adapters = {{"mine", adapter}}});
}

// A copy of an adapter with its config's text changed.
void copy_adapter(const fs::path& from, const TempDir& to, const std::string& find, const std::string& replace) {
  fs::copy_file(from / "adapter_model.safetensors", to / "adapter_model.safetensors");
  std::ifstream in(from / "adapter_config.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = text.find(find);
  ASSERT_NE(at, std::string::npos) << find;
  to.write("adapter_config.json", text.replace(at, find.size(), replace));
}

TEST(BadAdapter, OfAnotherModel) {
  for (const auto& [model, other] :
       {std::pair{"qwen3_moe", "nemotron_h"}, {"nemotron_h", "qwen3_moe"}, {"mixtral", "nemotron_h"}}) {
    for (const char* adapter : {"attn", "experts", "per_expert"}) {
      const auto refused = with_adapter(model, golden_dir(other) / "adapters" / adapter);
      ASSERT_FALSE(refused.ok()) << model << ", " << other << ", " << adapter;
      EXPECT_THAT(refused, FailsWith(Code::kInvalidFile, "adapter of another model?"));
    }
  }
  EXPECT_THAT(with_adapter("qwen3_moe", golden_dir("nemotron_h") / "adapters/attn"),
              FailsWith(Code::kInvalidFile, "bind to nothing"));
}

TEST(BadAdapter, UnboundTensor) {
  const fs::path from = golden_dir("qwen3_moe") / "adapters/attn";
  const TempDir dir;
  fs::copy_file(from / "adapter_config.json", dir / "adapter_config.json");
  const auto file = SafetensorsFile::open(from / "adapter_model.safetensors");
  ASSERT_THAT(file, Succeeds());
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& t : (*file)->tensors()) tensors.push_back({t.name, t.dtype, t.shape, t.bytes()});
  NamedTensor more = tensors.front();
  more.name = "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight";
  tensors.push_back(more);
  ASSERT_THAT(write_safetensors(dir / "adapter_model.safetensors", tensors), Succeeds());
  EXPECT_THAT(with_adapter("qwen3_moe", dir.path()), FailsWith(Code::kInvalidFile, "bind to nothing: '" + more.name));
}

TEST(BadAdapter, RankZero) {
  const TempDir dir;
  copy_adapter(golden_dir("qwen3_moe") / "adapters/attn", dir, "\"r\": ", "\"r\": 0, \"was\": ");
  EXPECT_THAT(with_adapter("qwen3_moe", dir.path()), FailsWith(Code::kInvalidFile, "'r' is 0"));
}

TEST(BadAdapter, RankOfTheConfigIsNotTheFiles) {
  const TempDir dir;
  copy_adapter(golden_dir("qwen3_moe") / "adapters/attn", dir, "\"r\": ", "\"r\": 7, \"was\": ");
  EXPECT_THAT(with_adapter("qwen3_moe", dir.path()), FailsWith(Code::kInvalidFile, "lora_A"));
}

TEST(BadAdapter, PickleOnly) {
  const TempDir dir;
  fs::copy_file(golden_dir("qwen3_moe") / "adapters/attn/adapter_config.json", dir / "adapter_config.json");
  dir.write("adapter_model.bin", "not looked at");
  EXPECT_THAT(with_adapter("qwen3_moe", dir.path()), FailsWith(Code::kUnsupported, "is a pickle"));
  EXPECT_THAT(with_adapter("qwen3_moe", dir.path()), FailsWith(Code::kUnsupported, "adapter_model.bin"));
}

TEST(BadAdapter, OtherModulesToSave) {
  const TempDir dir;
  copy_adapter(golden_dir("qwen3_moe") / "adapters/attn", dir, "\"modules_to_save\": null",
               "\"modules_to_save\": [\"o_proj\"]");
  EXPECT_THAT(with_adapter("qwen3_moe", dir.path()), FailsWith(Code::kUnsupported, "modules_to_save lists 'o_proj'"));
}

// A model where an adapter is wanted, and the other way round.
TEST(BadAdapter, FoldersTakenForEachOther) {
  EXPECT_THAT(with_adapter("qwen3_moe", golden_dir("qwen3_moe")), FailsWith(Code::kNotFound, "adapter_config.json"));
  EXPECT_FALSE(load(golden_dir("qwen3_moe") / "adapters/attn").ok());
}

}  // namespace
}  // namespace cadre::test
