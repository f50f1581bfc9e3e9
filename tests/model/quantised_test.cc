// Published weights that are stored quantised: a golden quantised here and read gives the bits of the same numbers
// written as BF16; what is missing, damaged or of another kind is refused.
#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/float16.h"
#include "dist/communicator.h"
#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"
#include "tensor/test_device.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

// As the standard's text has it: sign, four bits of exponent with bias 7, three of mantissa.
float e4m3(int code) {
  const int exponent = code >> 3 & 15;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(code & 7), -9)
                                        : std::ldexp(static_cast<float>(8 + (code & 7)), exponent - 10);
  return code & 128 ? -magnitude : magnitude;
}

float e2m1(int code) {
  const int exponent = code >> 1 & 3;
  const float magnitude = exponent == 0 ? 0.5f * static_cast<float>(code & 1)
                                        : std::ldexp(static_cast<float>(2 + (code & 1)), exponent - 2);
  return code & 8 ? -magnitude : magnitude;
}

// Finds the code whose value is nearest.
class NearestCode {
 public:
  // Codes with all bits of `skip` stand for no number.
  NearestCode(int codes, int skip, float (*value)(int)) {
    for (int code = 0; code < codes; ++code) {
      if ((code & skip) != skip) values_.emplace_back(value(code), code);
    }
    std::sort(values_.begin(), values_.end());
  }
  int operator()(float x) const {
    auto above = std::lower_bound(values_.begin(), values_.end(), std::pair(x, 0));
    if (above == values_.end()) return values_.back().second;
    if (above == values_.begin()) return above->second;
    const auto below = std::prev(above);
    return x - below->first < above->first - x ? below->second : above->second;
  }

 private:
  std::vector<std::pair<float, int>> values_;
};

template <class T>
HostTensor host(DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  HostTensor out{dtype, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

struct Pair {
  ModelFiles quantised, plain;  // the same numbers
};

Json fp8_config(std::int64_t rows, std::int64_t columns) {
  return Json::object({{"activation_scheme", "dynamic"},
                       {"fmt", "e4m3"},
                       {"quant_method", "fp8"},
                       {"weight_block_size", Json::array(std::vector<std::int64_t>{rows, columns})}});
}

// Every projection but the head, as DeepSeek-V3 does; other tensors stay BF16.
Pair fp8(const std::string& model, std::int64_t block_rows, std::int64_t block_columns, DType scale_dtype) {
  Pair out{ModelFiles::read(golden_dir(model)), ModelFiles::read(golden_dir(model))};
  out.quantised.set("quantization_config", fp8_config(block_rows, block_columns));
  const NearestCode nearest(256, 0x7f, e4m3);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : out.plain.tensors) {
    const bool expert = name.find(".experts.") != std::string::npos;  // named w1, w2, w3 in some families
    if (expert || name.ends_with("_proj.weight") || name.ends_with("kv_a_proj_with_mqa.weight")) names.push_back(name);
  }
  EXPECT_GT(names.size(), 50u);
  for (const std::string& name : names) {
    const HostTensor& tensor = out.plain.tensors[name];
    const std::vector<float> values = tensor.values();
    const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const std::int64_t down = (rows + block_rows - 1) / block_rows,
                       across = (columns + block_columns - 1) / block_columns;
    std::vector<float> scales(static_cast<std::size_t>(down * across));
    const auto scale = [&](std::int64_t i) -> float& {
      return scales[static_cast<std::size_t>(i / columns / block_rows * across + i % columns / block_columns)];
    };
    const auto n = static_cast<std::int64_t>(values.size());
    for (std::int64_t i = 0; i < n; ++i) {
      scale(i) = std::max(scale(i), std::abs(values[static_cast<std::size_t>(i)]) / 448.0f);
    }
    std::vector<std::uint16_t> short_scales, plain;
    for (float& s : scales) {
      const Bf16 rounded = to_bf16(s);
      short_scales.push_back(rounded.bits);
      if (scale_dtype == DType::kBF16) s = to_float(rounded);
    }
    std::vector<std::uint8_t> codes;
    for (std::int64_t i = 0; i < n; ++i) {
      codes.push_back(static_cast<std::uint8_t>(nearest(values[static_cast<std::size_t>(i)] / scale(i))));
      plain.push_back(to_bf16(e4m3(codes.back()) * scale(i)).bits);
    }
    out.quantised.tensors[name] = host(DType::kF8E4M3, {rows, columns}, codes);
    out.quantised.tensors[name + "_scale_inv"] = scale_dtype == DType::kBF16
                                                     ? host(DType::kBF16, {down, across}, short_scales)
                                                     : host(DType::kF32, {down, across}, scales);
    out.plain.tensors[name] = host(DType::kBF16, {rows, columns}, plain);
  }
  return out;
}

// gpt-oss with its inner width raised to what MXFP4 divides, and its experts quantised.
Pair mxfp4() {
  constexpr std::int64_t kInner = 64;
  const NearestCode nearest(16, 16, e2m1);
  Pair out{ModelFiles::read(golden_dir("gpt_oss")), ModelFiles::read(golden_dir("gpt_oss"))};
  for (ModelFiles* files : {&out.quantised, &out.plain}) files->set("intermediate_size", Json(kInner));
  out.quantised.set(
      "quantization_config",
      Json::object({{"quant_method", "mxfp4"},
                    {"modules_to_not_convert", Json::array(std::vector<std::string>{"model.layers.*.self_attn"})}}));
  const std::vector<std::string> modules = {"model.layers.0.mlp.experts.", "model.layers.1.mlp.experts."};
  for (const std::string& module : modules) {
    for (const auto& [name, rows, columns] : {std::tuple{"gate_up_proj", 2 * kInner, std::int64_t{64}},
                                              std::tuple{"down_proj", std::int64_t{64}, kInner}}) {
      const HostTensor old = out.plain.tensors.at(module + name);  // [E, columns, rows]
      const std::vector<float> values = old.values();
      const std::int64_t experts = old.shape[0];
      std::vector<std::uint8_t> packed, scales;
      std::vector<std::uint16_t> plain(static_cast<std::size_t>(experts * rows * columns));
      for (std::int64_t row = 0; row < experts * rows; ++row) {
        const std::int64_t e = row / rows, r = row % rows;
        const auto value = [&](std::int64_t c) {
          const std::int64_t at = (e * old.shape[1] + c % old.shape[1]) * old.shape[2] + r % old.shape[2];
          return values[static_cast<std::size_t>(at)];
        };
        for (std::int64_t begin = 0; begin < columns; begin += 32) {
          float most = 1e-30f;
          for (std::int64_t c = begin; c < begin + 32; ++c) most = std::max(most, std::abs(value(c)));
          const int exponent = std::ilogb(most) - 2;
          scales.push_back(static_cast<std::uint8_t>(exponent + 127));
          for (std::int64_t c = begin; c < begin + 32; ++c) {
            const int code = nearest(std::ldexp(value(c), -exponent));
            if (c % 2 == 0) packed.push_back(0);
            packed.back() |= static_cast<std::uint8_t>(c % 2 == 0 ? code : code << 4);
            plain[static_cast<std::size_t>((e * columns + c) * rows + r)] =
                to_bf16(std::ldexp(e2m1(code), exponent)).bits;
          }
        }
      }
      out.quantised.tensors.erase(module + name);
      out.quantised.tensors[module + name + "_blocks"] = host(DType::kU8, {experts, rows, columns / 32, 16}, packed);
      out.quantised.tensors[module + name + "_scales"] = host(DType::kU8, {experts, rows, columns / 32}, scales);
      out.plain.tensors[module + name] = host(DType::kBF16, {experts, columns, rows}, plain);
    }
    // The biases, in the new width.
    const HostTensor old = out.plain.tensors.at(module + "gate_up_proj_bias");
    HostTensor bias{old.dtype, {old.shape[0], 2 * kInner}, {}};
    for (std::int64_t i = 0; i < old.shape[0] * 2 * kInner; ++i) {
      const auto at = static_cast<std::size_t>(i / (2 * kInner) * old.shape[1] + i % (2 * kInner) % old.shape[1]);
      bias.bytes.insert(bias.bytes.end(), {old.bytes[2 * at], old.bytes[2 * at + 1]});
    }
    for (ModelFiles* files : {&out.quantised, &out.plain}) files->tensors[module + "gate_up_proj_bias"] = bias;
  }
  return out;
}

const Ids& prompt() {
  static const Ids kIds = read_golden(golden_dir("deepseek_v3") / "golden.safetensors")[2].ids;
  return kIds;
}

std::vector<float> logits(GoldenSetup setup) {
  auto model = open_golden(setup);
  EXPECT_THAT(model, Succeeds());
  if (!model.ok()) return {};
  std::vector<float> out = model->logits(prompt(), setup.adapters.empty() ? -1 : 0, {256});
  EXPECT_TRUE(std::isfinite(out.back()));
  return out;
}

std::vector<float> on_two_ranks(const fs::path& dir, bool expert_parallel) {
  const auto communicators = make_in_process_communicators(2);
  std::vector<GoldenModel> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    auto golden = open_golden({.model_dir = dir,
                               .ranks = {.rank = rank, .size = 2, .expert_parallel = expert_parallel},
                               .communicator = communicators[static_cast<std::size_t>(rank)].get(),
                               .threads = 1});
    EXPECT_THAT(golden, Succeeds());
    if (!golden.ok()) return {};
    ranks.push_back(std::move(golden).value());
  }
  std::vector<std::vector<float>> out(2);
  std::thread other([&] { out[1] = ranks[1].logits(prompt(), -1, {256}); });
  out[0] = ranks[0].logits(prompt(), -1, {256});
  other.join();
  EXPECT_TRUE(out[0] == out[1]);
  return out[0];
}

// `backend`: one that packs, beside the reference; empty: none takes such a layer.
void expect_same_bits(const Pair& pair, const std::vector<AdapterFolder>& adapters, const std::string& backend) {
  const TempDir dir;
  const fs::path quantised = dir / "quantised", plain = dir / "plain";
  pair.quantised.write(quantised);
  pair.plain.write(plain);
  const std::vector<float> want = logits({.model_dir = plain, .adapters = adapters});
  ASSERT_FALSE(want.empty());
  EXPECT_TRUE(logits({.model_dir = quantised, .adapters = adapters}) == want);
  if (!backend.empty()) {
    const Policy packed{.kind = PolicyKind::kRequire, .names = {backend}};
    EXPECT_TRUE(logits({.model_dir = quantised, .adapters = adapters, .policy = packed}) ==
                logits({.model_dir = plain, .adapters = adapters, .policy = packed}));
  }
  auto device = make_test_device(std::size_t{64} << 20);
  ASSERT_THAT(device, Succeeds());
  EXPECT_TRUE(logits({.model_dir = quantised, .adapters = adapters, .device = *device}) == want);
  for (const bool expert_parallel : {false, true}) {
    EXPECT_TRUE(on_two_ranks(quantised, expert_parallel) == on_two_ranks(plain, expert_parallel)) << expert_parallel;
  }
}

TEST(Quantised, Fp8OfDeepseek) {
  expect_same_bits(fp8("deepseek_v3", 128, 128, DType::kF32),
                   {{"experts", golden_dir("deepseek_v3") / "adapters/experts"}}, "cpu_vector");
}

// MiniMax-M2 as it is published.
TEST(Quantised, Fp8OfMinimax) {
  Pair pair = fp8("minimax_m2", 8, 16, DType::kF32);
  const std::string folder = extra_dir() / "models/minimax_m2_published/config.json";
  for (ModelFiles* files : {&pair.quantised, &pair.plain}) files->config = Json::parse_file(folder).value();
  pair.quantised.set("quantization_config",
                     Json::object({{"activation_scheme", "dynamic"},
                                   {"fmt", "float8_e4m3fn"},
                                   {"quant_method", "fp8"},
                                   {"weight_block_size", Json::array(std::vector<std::int64_t>{8, 16})},
                                   {"modules_to_not_convert", Json::array(std::vector<std::string>{
                                                                  "gate", "e_score_correction_bias", "lm_head"})}}));
  const TempDir dir;
  pair.quantised.write(dir / "quantised");
  pair.plain.write(dir / "plain");
  const std::vector<AdapterFolder> adapters = {{"experts", golden_dir("minimax_m2") / "adapters/experts"}};
  const std::vector<float> want = logits({.model_dir = dir / "plain", .adapters = adapters});
  ASSERT_FALSE(want.empty());
  EXPECT_TRUE(logits({.model_dir = dir / "quantised", .adapters = adapters}) == want);
}

// Blocks that end within the matrices, in both directions, and scales of 16 bits.
TEST(Quantised, Fp8WithPartialBlocks) { expect_same_bits(fp8("deepseek_v3", 20, 48, DType::kBF16), {}, "cpu_vector"); }

// As transformers 5 saves it: the experts of a layer in one tensor, their scales in another.
TEST(Quantised, Fp8Stacked) {
  Pair pair = fp8("deepseek_v3", 8, 16, DType::kF32);
  ModelFiles& files = pair.quantised;
  for (const std::string module : {"model.layers.1.mlp.experts.", "model.layers.2.mlp.experts."}) {
    for (const char* suffix : {"", "_scale_inv"}) {
      HostTensor up, down;
      for (int e = 0; e < 16; ++e) {
        const auto append = [&](const char* name, HostTensor& to, std::int64_t parts) {
          const auto node =
              files.tensors.extract(module + std::to_string(e) + "." + name + "_proj.weight" + std::string(suffix));
          ASSERT_FALSE(node.empty());
          const HostTensor& from = node.mapped();
          to.dtype = from.dtype;
          to.shape = {16, parts * from.shape[0], from.shape[1]};
          to.bytes.insert(to.bytes.end(), from.bytes.begin(), from.bytes.end());
        };
        append("gate", up, 2);
        append("up", up, 2);
        append("down", down, 1);
      }
      files.tensors[module + "gate_up_proj" + suffix] = up;
      files.tensors[module + "down_proj" + suffix] = down;
    }
  }
  expect_same_bits(pair, {}, "cpu_vector");
}

TEST(Quantised, Mxfp4OfGptOss) { expect_same_bits(mxfp4(), {}, ""); }

// What transformers' dequantisation gives, bit by bit, for codes of every kind under three factors.
TEST(Quantised, NumbersOfTransformers) {
  const TempDir dir;
  ModelFiles files;
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  codes[0x7f] = codes[0xff] = 0;  // NaN
  constexpr std::array kAt = {0, 1, 7, 8, 9, 21, 56, 63, 100, 126, 128, 129, 200, 254};
  const std::vector<std::pair<float, std::array<std::uint16_t, 14>>> cases = {
      {0.0123f,
       {0x0, 0x37ca, 0x3930, 0x394a, 0x3963, 0x3a24, 0x3c4a, 0x3cbd, 0x3f17, 0x40b0, 0x8000, 0xb7ca, 0xbd4a, 0xc0b0}},
      {1.0f,
       {0x0, 0x3b00, 0x3c60, 0x3c80, 0x3c90, 0x3d50, 0x3f80, 0x3ff0, 0x4240, 0x43e0, 0x8000, 0xbb00, 0xc080, 0xc3e0}},
      {3.3e-05f,
       {0x0, 0x338a, 0x34f2, 0x350a, 0x351c, 0x35e1, 0x380a, 0x3882, 0x3ad0, 0x3c72, 0x8000, 0xb38a, 0xb90a, 0xbc72}}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = "w" + std::to_string(i);
    files.tensors[name] = host(DType::kF8E4M3, {16, 16}, codes);
    files.tensors[name + "_scale_inv"] = host(DType::kF32, {1, 1}, std::vector<float>{cases[i].first});
  }
  files.write_weights(dir / "model.safetensors");
  const std::shared_ptr<Checkpoint> checkpoint = Checkpoint::open(dir.path()).value();
  const Quantisation fp8{.method = Quantisation::Method::kFp8};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::vector<std::int64_t> shape = {16, 16};
    const auto tensor = QuantisedTensor::open(checkpoint, fp8, "w" + std::to_string(i), shape);
    ASSERT_THAT(tensor, Succeeds());
    std::vector<std::uint16_t> got(256);
    ASSERT_THAT(tensor->read(0, got.data()), Succeeds());
    for (std::size_t k = 0; k < kAt.size(); ++k) {
      EXPECT_EQ(got[static_cast<std::size_t>(kAt[k])], cases[i].second[k]) << cases[i].first << " code " << kAt[k];
    }
  }
}

// The same of MXFP4: the low half first, small scales down to numbers that are not normal.
TEST(Quantised, NumbersOfTransformersInMxfp4) {
  const TempDir dir;
  std::vector<std::uint8_t> codes(3 * 16);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 16);
  codes[8] = 0x98;
  ModelFiles files;
  files.tensors["w_blocks"] = host(DType::kU8, {1, 3, 1, 16}, codes);
  files.tensors["w_scales"] = host(DType::kU8, {1, 3, 1}, std::vector<std::uint8_t>{0, 1, 100});
  files.write_weights(dir / "model.safetensors");
  const std::vector<std::int64_t> shape = {1, 3, 32};
  const auto tensor =
      QuantisedTensor::open(Checkpoint::open(dir.path()).value(), {.method = Quantisation::Method::kMxfp4}, "w", shape);
  ASSERT_THAT(tensor, Succeeds());
  std::vector<std::uint16_t> got(3 * 32);
  ASSERT_THAT(tensor->read(0, got.data()), Succeeds());
  const std::array<std::array<std::uint16_t, 8>, 3> want = {
      {{0, 0x20, 0x40, 0x60, 0x80, 0xc0, 0x100, 0x140},
       {0, 0x40, 0x80, 0xc0, 0x100, 0x140, 0x180, 0x1c0},
       {0, 0x3180, 0x3200, 0x3240, 0x3280, 0x32c0, 0x3300, 0x3340}}};
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t code = 0; code < 8; ++code) {
      EXPECT_EQ(got[32 * row + 2 * code], want[row][code]) << row << " code " << code;
      EXPECT_EQ(got[32 * row + 2 * code + 1], 0) << row << " code " << code;
    }
  }
  EXPECT_EQ(got[16], 0x8000);
  EXPECT_EQ(got[17], 0x8020);
}

Result<std::unique_ptr<Engine>> open_engine(const fs::path& dir, std::int64_t memory_limit = 0) {
  EngineOptions options;
  options.model_dir = dir;
  options.need_tokenizer = false;
  options.threads = 1;
  options.memory_limit = memory_limit;
  options.max_num_seqs = 1;
  options.backend = {.kind = PolicyKind::kRequire, .names = {"cpu_reference"}};
  return Engine::open(options);
}

TEST(Quantised, MemoryIsThatOfBf16AndSaid) {
  for (const auto& [pair, word] : {std::pair{fp8("deepseek_v3", 128, 128, DType::kF32), "FP8"}, {mxfp4(), "MXFP4"}}) {
    const TempDir dir;
    pair.quantised.write(dir / "quantised");
    pair.plain.write(dir / "plain");
    const auto quantised = open_engine(dir / "quantised"), plain = open_engine(dir / "plain");
    ASSERT_THAT(quantised, Succeeds());
    ASSERT_THAT(plain, Succeeds());
    EXPECT_EQ((*quantised)->memory().weights, (*plain)->memory().weights);
    std::string notes;
    for (const std::string& note : (*quantised)->notes()) notes += note + "\n";
    EXPECT_NE(notes.find(std::string("weights are ") + word + " in the file ("), std::string::npos) << notes;
    EXPECT_NE(notes.find("BF16 in memory: "), std::string::npos) << notes;
    // Room for the file and not for its weights.
    EXPECT_THAT(open_engine(dir / "quantised", (*plain)->memory().weights - 1),
                FailsWith(Code::kOutOfMemory, "weights"));
  }
}

// A plan reads shapes: damaged numbers do not matter to it.
TEST(Quantised, PlansReadNoWeights) {
  const TempDir dir;
  Pair pair = fp8("deepseek_v3", 128, 128, DType::kF32);
  for (auto& [name, tensor] : pair.quantised.tensors) {
    if (tensor.dtype == DType::kF8E4M3) std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0x7f});
  }
  pair.quantised.write(dir.path());
  ModelOptions options;
  options.dir = dir.path();
  options.device = make_cpu_device();
  EXPECT_THAT(Model::load(options), FailsWith(Code::kInvalidFile, "is not finite"));
  options.shapes_only = true;
  Result<std::unique_ptr<Model>> plan = Model::load(options);
  ASSERT_THAT(plan, Succeeds());
  EXPECT_THAT((*plan)->prepare(make_moe_gate({}), {}, {}), FailsWith(Code::kInternal, "no weights that could run"));
}

// Experts are read when a backend asks for them; --check-weights reads them at once.
TEST(Quantised, ExpertsAreReadWhenAskedFor) {
  const TempDir dir;
  Pair pair = fp8("deepseek_v3", 128, 128, DType::kF32);
  pair.quantised.tensors.at("model.layers.2.mlp.experts.9.down_proj.weight").bytes[3] = std::byte{0x7f};
  pair.quantised.write(dir.path());
  ModelOptions options;
  options.dir = dir.path();
  options.device = make_cpu_device();
  EXPECT_THAT(Model::load(options), Succeeds());
  EXPECT_THAT(open_golden({.model_dir = dir.path()}), FailsWith(Code::kInvalidFile, "experts.9.down_proj.weight"));
  options.check_weights = true;
  EXPECT_THAT(Model::load(options), FailsWith(Code::kInvalidFile, "experts.9.down_proj.weight"));
}

// An expert that was dropped comes again with the same numbers, and is not taken from someone who holds the owner.
TEST(Quantised, DroppedExpertsComeAgain) {
  const TempDir dir;
  fp8("deepseek_v3", 128, 128, DType::kF32).quantised.write(dir.path());
  const Result<ModelConfig> config = read_model_config(dir.path().string());
  ASSERT_THAT(config, Succeeds());
  Result<std::shared_ptr<Checkpoint>> checkpoint = Checkpoint::open(dir.path());
  ASSERT_THAT(checkpoint, Succeeds());
  WeightLoader loader(*checkpoint, make_cpu_device(), false, config->quantisation);
  LayerSpec spec;
  spec.experts = 16;
  spec.hidden = static_cast<int>(config->hidden);
  spec.intermediate = static_cast<int>(config->json.get_int("moe_intermediate_size").value());
  const ExpertNames names{
      .module = "model.layers.1.mlp.experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
  Result<OpenedExperts> opened = open_expert_weights(loader, names, spec);
  ASSERT_THAT(opened, Succeeds());
  const ExpertWeights& experts = *opened->weights;
  const auto numbers = [](const View& v) {
    const auto* first = static_cast<const std::uint16_t*>(v.data);
    return std::vector<std::uint16_t>(first, first + v.elements());
  };
  const std::vector<std::uint16_t> before = numbers(experts.up(3).value());
  experts.drop_pages(3);
  EXPECT_EQ(numbers(experts.up(3).value()), before);
  const std::shared_ptr<const void> owner = experts.owner();
  const View held = experts.up(3).value();
  experts.drop_pages(3);
  experts.drop_pages();
  EXPECT_EQ(numbers(held), before);
  EXPECT_NE(experts.up(3).value().data, held.data);
}

class Damaged : public testing::Test {
 protected:
  Status load(const ModelFiles& files) {
    files.write(dir_.path());
    return open_golden({.model_dir = dir_.path()}).status();
  }
  void refuse(const ModelFiles& files, Code code, const std::vector<std::string>& phrases) {
    const Status status = load(files);
    for (const std::string& phrase : phrases) EXPECT_THAT(status, FailsWith(code, phrase));
  }
  static std::string module(const char* name) { return std::string("model.layers.1.mlp.experts.") + name; }
  TempDir dir_;
};

TEST_F(Damaged, Fp8) {
  const ModelFiles good = fp8("deepseek_v3", 128, 128, DType::kF32).quantised;
  const std::string expert = module("3.up_proj.weight"), dense = "model.layers.0.self_attn.o_proj.weight";
  for (const std::string& name : {expert, dense}) {
    SCOPED_TRACE(name);
    ModelFiles files = good;
    files.tensors.erase(name + "_scale_inv");
    refuse(files, Code::kInvalidFile, {"'" + name + "'", "scales '" + name + "_scale_inv' are missing"});
    files = good;
    files.tensors[name + "_scale_inv"] = host(DType::kF32, {2, 1}, std::vector<float>{1, 1});
    refuse(files, Code::kInvalidFile, {"'" + name + "_scale_inv' has shape [2, 1], want [1, 1]", "weight_block_size"});
    files = good;
    files.tensors[name + "_scale_inv"] = host(DType::kF32, {1, 1}, std::vector<float>{NAN});
    refuse(files, Code::kInvalidFile, {"'" + name + "_scale_inv' is not finite at element 0"});
    files = good;
    files.tensors[name + "_scale_inv"] = host(DType::kF32, {1, 1}, std::vector<float>{3e38f});
    refuse(files, Code::kInvalidFile, {"'" + name + "' with its scales is not finite at element"});
    files = good;
    files.tensors[name + "_scale_inv"] = host(DType::kF8E8M0, {1, 1}, std::vector<std::uint8_t>{255});
    refuse(files, Code::kInvalidFile, {"'" + name + "_scale_inv' is not finite at element 0"});
    files = good;
    files.tensors[name + "_scale_inv"] = host(DType::kI32, {1, 1}, std::vector<std::int32_t>{1});
    refuse(files, Code::kUnsupported, {"'" + name + "_scale_inv' is int32, want float32"});
    files = good;
    files.tensors[name].bytes[70] = std::byte{0xff};
    refuse(files, Code::kInvalidFile, {"'" + name + "' with its scales is not finite at element 70"});
    files = good;
    std::swap(files.tensors[name].shape[0], files.tensors[name].shape[1]);
    if (name == expert) refuse(files, Code::kInvalidFile, {"'" + name + "' has shape"});
  }
  ModelFiles files = good;
  files.remove("quantization_config");
  refuse(files, Code::kUnsupported, {"is float8_e4m3, want bfloat16"});
}

TEST_F(Damaged, Mxfp4) {
  const ModelFiles good = mxfp4().quantised;
  const std::string blocks = module("down_proj_blocks"), scales = module("down_proj_scales");
  ModelFiles files = good;
  files.tensors.erase(scales);
  refuse(files, Code::kInvalidFile, {"'" + blocks + "'", "'" + scales + "' are missing"});
  files = good;
  files.tensors[scales].shape = {8, 2, 64};
  refuse(files, Code::kInvalidFile, {"'" + scales + "' has shape [8, 2, 64], want [8, 64, 2]"});
  files = good;
  files.tensors[blocks].shape = {8, 64, 4, 8};
  refuse(files, Code::kInvalidFile, {"'" + blocks + "' has shape [8, 64, 4, 8], want [8, 64, 2, 16]"});
  files = good;
  files.tensors[scales].bytes[5] = std::byte{255};
  refuse(files, Code::kInvalidFile, {"'" + scales + "' is 255 at element 5", "NaN"});
  files = good;
  files.tensors[scales].bytes[5] = std::byte{254};
  files.tensors[blocks].bytes[5 * 16] = std::byte{0x07};
  refuse(files, Code::kInvalidFile, {"'" + blocks + "' with its scales is not finite at element 160"});
  files = good;
  files.tensors[blocks].dtype = DType::kI8;
  refuse(files, Code::kUnsupported, {"'" + blocks + "' is int8, want uint8"});
  files = good;
  files.set("intermediate_size", Json(48));
  EXPECT_FALSE(load(files).ok());
}

TEST_F(Damaged, OtherMethods) {
  ModelFiles files = ModelFiles::read(golden_dir("deepseek_v3"));
  for (const char* method : {"awq", "gptq", "compressed-tensors", "bitsandbytes", "modelopt", "fbgemm_fp8", "hqq"}) {
    files.set("quantization_config", Json::object({{"quant_method", method}}));
    refuse(files, Code::kUnsupported, {std::string("quant_method '") + method + "'", "unquantised export"});
  }
  const auto refuse_fp8 = [&](const char* key, const Json& value, Code code, const std::string& phrase) {
    files.set("quantization_config", Json::object({{"quant_method", "fp8"}, {key, value}}));
    refuse(files, code, {key, phrase});
  };
  refuse_fp8("fmt", "e5m2", Code::kUnsupported, "'e5m2', want e4m3");
  refuse_fp8("activation_scheme", "static", Code::kUnsupported, "want dynamic");
  refuse_fp8("weight_block_size", nullptr, Code::kUnsupported, "want two numbers");
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{128}, {0, 128}, {128, -1}, {1, 2, 3}}) {
    refuse_fp8("weight_block_size", Json::array(sizes), Code::kInvalidFile, "want two numbers");
  }
}

}  // namespace
}  // namespace cadre::test
