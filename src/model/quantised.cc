#include "model/quantised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "base/result.h"
#include "tensor/device.h"

namespace cadre {
namespace {

constexpr std::int64_t kMaxBlock = 1 << 20;
constexpr std::int64_t kGroup = 32;  // MXFP4 elements with one scale
constexpr std::string_view kScaleSuffix = "_scale_inv", kBlocksSuffix = "_blocks", kScalesSuffix = "_scales";

// The 256 values of float8_e4m3: bias 7, no infinities, two NaN.
constexpr std::array<float, 256> kE4m3 = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float value = exponent == 0 ? static_cast<float>(mantissa) : static_cast<float>(mantissa + 8);
    for (int i = std::max(exponent, 1); i < 10; ++i) value *= 0.5f;
    for (int i = 10; i < exponent; ++i) value *= 2.0f;
    values[static_cast<std::size_t>(code)] = code & 128 ? -value : value;
  }
  values[0x7f] = values[0xff] = std::numeric_limits<float>::quiet_NaN();
  return values;
}();

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

constexpr bool is_finite_bf16(std::uint16_t bits) { return (bits & 0x7f80) != 0x7f80; }

constexpr int kNanScale = 255;

// BF16 of each MXFP4 code under each scale; 255 stands for NaN and is refused before.
using Mxfp4Table = std::array<std::array<std::uint16_t, 16>, 256>;
const Mxfp4Table& mxfp4_table() {
  static const Mxfp4Table kTable = [] {
    Mxfp4Table table;
    for (int scale = 0; scale < 256; ++scale) {
      for (std::size_t code = 0; code < 16; ++code) {
        table[static_cast<std::size_t>(scale)][code] = to_bf16(std::ldexp(kE2m1[code], scale - 127)).bits;
      }
    }
    return table;
  }();
  return kTable;
}

std::int64_t blocks(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

// Element i of float32, bfloat16, float16 or e8m0, at any address.
float scale_at(const TensorInfo& tensor, std::int64_t i) {
  const std::byte* at = tensor.data + i * dtype_bits(tensor.dtype) / 8;
  if (tensor.dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (tensor.dtype == DType::kF8E8M0) {
    const int code = std::to_integer<int>(*at);
    return code == kNanScale ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return tensor.dtype == DType::kBF16 ? to_float(Bf16{bits}) : to_float(F16{bits});
}

Status wrong_shape(const TensorInfo& tensor, std::span<const std::int64_t> want, const char* why) {
  return error(Code::kInvalidFile, *tensor.file, ": tensor '", tensor.name, "' has shape ", shape_text(tensor.shape),
               ", want ", shape_text(want), why);
}

bool same(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// The tensor with the scales of `name`.
Result<const TensorInfo*> find_scales(const Checkpoint& checkpoint, const TensorInfo& codes, const std::string& name) {
  const TensorInfo* scales = checkpoint.find(name);
  if (scales == nullptr) {
    return error(Code::kInvalidFile, *codes.file, ": tensor '", codes.name, "' is quantised and its scales '", name,
                 "' are missing; the checkpoint is incomplete");
  }
  return scales;
}

}  // namespace

Result<Quantisation> read_quantisation(const Json& json) {
  constexpr std::string_view kKey = "quantization_config";
  Quantisation out;
  if (!json.has(kKey)) return out;
  CADRE_ASSIGN(const Json quantised, json.get_object(kKey));
  CADRE_ASSIGN(const std::string method, quantised.get_string_or("quant_method", "unnamed"));
  if (method == "mxfp4") {
    out.method = Quantisation::Method::kMxfp4;
    return out;
  }
  if (method != "fp8") {
    return error(Code::kUnsupported, json.where(kKey), ": the weights are quantised (quant_method '", method,
                 "'), want BF16, F16 or F32 weights, or quant_method 'fp8' or 'mxfp4'; use an unquantised export of ",
                 "the model");
  }
  out.method = Quantisation::Method::kFp8;
  CADRE_ASSIGN(const std::string format, quantised.get_string_or("fmt", "e4m3"));
  if (format != "e4m3" && format != "float8_e4m3fn") {
    return error(Code::kUnsupported, quantised.where("fmt"), " is '", format, "', want e4m3");
  }
  CADRE_ASSIGN(const std::string scheme, quantised.get_string_or("activation_scheme", "dynamic"));
  if (scheme != "dynamic") {
    return error(Code::kUnsupported, quantised.where("activation_scheme"), " is '", scheme,
                 "', want dynamic: scales of activations that a file stores are not applied");
  }
  const Json* block = quantised.find("weight_block_size");
  if (block == nullptr) return out;
  if (block->is_null()) {
    return error(Code::kUnsupported, quantised.where("weight_block_size"),
                 " is null, want two numbers: weights with one scale for each tensor or row are not read");
  }
  CADRE_ASSIGN(const std::vector<std::int64_t> sizes, quantised.get_int_list("weight_block_size"));
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1 || sizes[0] > kMaxBlock || sizes[1] > kMaxBlock) {
    return error(Code::kInvalidFile, quantised.where("weight_block_size"), " is ", block->dump(),
                 ", want two numbers from 1 to ", kMaxBlock, ", e.g. [128, 128]");
  }
  out.block_rows = sizes[0];
  out.block_columns = sizes[1];
  return out;
}

bool QuantisedTensor::is_there(const Checkpoint& checkpoint, const Quantisation& quantisation,
                               const std::string& name) {
  if (quantisation.method == Quantisation::Method::kNone) return false;
  if (quantisation.method == Quantisation::Method::kMxfp4) {
    return checkpoint.find(name) == nullptr && checkpoint.find(name + std::string(kBlocksSuffix)) != nullptr;
  }
  const TensorInfo* tensor = checkpoint.find(name);
  return tensor != nullptr && tensor->dtype == DType::kF8E4M3;
}

Result<QuantisedTensor> QuantisedTensor::open(std::shared_ptr<const Checkpoint> checkpoint,
                                              const Quantisation& quantisation, const std::string& name,
                                              std::span<const std::int64_t> shape) {
  const bool fp8 = quantisation.method == Quantisation::Method::kFp8;
  QuantisedTensor out;
  out.checkpoint_ = std::move(checkpoint);
  out.quantisation_ = quantisation;
  out.codes_key_ = fp8 ? name : name + std::string(kBlocksSuffix);
  out.scales_key_ = name + std::string(fp8 ? kScaleSuffix : kScalesSuffix);
  out.codes_ = out.checkpoint_->find(out.codes_key_);
  CADRE_CHECK(out.codes_ != nullptr, "ask is_there first");
  CADRE_ASSIGN(out.scales_, find_scales(*out.checkpoint_, *out.codes_, out.scales_key_));
  const TensorInfo &codes = *out.codes_, &scales = *out.scales_;
  if (shape.size() != 2 && shape.size() != 3) {
    return error(Code::kUnsupported, *codes.file, ": tensor '", codes.name, "' is quantised, want bfloat16 for ",
                 shape_text(shape), ": only matrices are read in this form");
  }
  if (shape.size() == 3) out.matrices_ = shape[0];
  out.rows_ = shape[shape.size() - 2];
  out.columns_ = shape[shape.size() - 1];

  std::vector<std::int64_t> want(shape.begin(), shape.end());
  if (fp8) {
    if (!same(codes.shape, want)) return wrong_shape(codes, want, " by config.json");
    want[want.size() - 2] = blocks(out.rows_, quantisation.block_rows);
    want[want.size() - 1] = blocks(out.columns_, quantisation.block_columns);
    if (!same(scales.shape, want)) {
      return wrong_shape(scales, want, ": a factor for each block of weight_block_size in config.json");
    }
    if (!is_float_weight(scales.dtype) && scales.dtype != DType::kF8E8M0) {
      return error(Code::kUnsupported, *scales.file, ": tensor '", scales.name, "' is ", dtype_name(scales.dtype),
                   ", want float32, bfloat16, float16 or float8_e8m0");
    }
    return out;
  }
  if (out.columns_ % kGroup != 0) {
    return error(Code::kInvalidFile, *codes.file, ": tensor '", codes.name, "' should hold rows of ", out.columns_,
                 " by config.json, want a multiple of ", kGroup, ", which is what has one scale");
  }
  for (const TensorInfo* tensor : {&codes, &scales}) {
    if (tensor->dtype != DType::kU8) {
      return error(Code::kUnsupported, *tensor->file, ": tensor '", tensor->name, "' is ", dtype_name(tensor->dtype),
                   ", want uint8");
    }
  }
  want.back() = out.columns_ / kGroup;
  if (!same(scales.shape, want)) return wrong_shape(scales, want, " by config.json");
  want.push_back(kGroup / 2);
  if (!same(codes.shape, want)) return wrong_shape(codes, want, " by config.json");
  return out;
}

Status QuantisedTensor::not_finite(std::int64_t element) const {
  return error(Code::kInvalidFile, *codes_->file, ": tensor '", codes_->name, "' with its scales is not finite at ",
               "element ", element, "; the file is damaged");
}

Status QuantisedTensor::read(std::int64_t index, std::uint16_t* to) const {
  return quantisation_.method == Quantisation::Method::kFp8 ? read_fp8(index, to) : read_mxfp4(index, to);
}

Status QuantisedTensor::read_fp8(std::int64_t index, std::uint16_t* to) const {
  const auto& [method, block_rows, block_columns] = quantisation_;
  const std::int64_t down = blocks(rows_, block_rows), across = blocks(columns_, block_columns);
  const std::int64_t first = index * rows_ * columns_;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(codes_->data) + first;
  std::array<std::uint16_t, 256> table;
  for (std::int64_t i = 0; i < down; ++i) {
    const std::int64_t last_row = std::min(rows_, (i + 1) * block_rows);
    for (std::int64_t j = 0; j < across; ++j) {
      const std::int64_t at = (index * down + i) * across + j;
      const float scale = scale_at(*scales_, at);
      if (!std::isfinite(scale)) {
        return error(Code::kInvalidFile, *scales_->file, ": tensor '", scales_->name, "' is not finite at element ", at,
                     "; the file is damaged");
      }
      for (std::size_t code = 0; code < table.size(); ++code) table[code] = to_bf16(kE4m3[code] * scale).bits;
      const std::int64_t begin = j * block_columns, end = std::min(columns_, begin + block_columns);
      for (std::int64_t r = i * block_rows; r < last_row; ++r) {
        const std::uint8_t* from = codes + r * columns_;
        std::uint16_t* row = to + r * columns_;
        bool bad = false;
        for (std::int64_t c = begin; c < end; ++c) {
          row[c] = table[from[c]];
          bad |= !is_finite_bf16(row[c]);
        }
        if (!bad) continue;
        std::int64_t c = begin;
        while (is_finite_bf16(row[c])) ++c;
        return not_finite(first + r * columns_ + c);
      }
    }
  }
  return {};
}

Status QuantisedTensor::read_mxfp4(std::int64_t index, std::uint16_t* to) const {
  const Mxfp4Table& table = mxfp4_table();
  const std::int64_t groups = rows_ * columns_ / kGroup, first = index * groups;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(codes_->data) + first * (kGroup / 2);
  const auto* scales = reinterpret_cast<const std::uint8_t*>(scales_->data) + first;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (scales[g] == kNanScale) {
      return error(Code::kInvalidFile, *scales_->file, ": tensor '", scales_->name, "' is 255 at element ", first + g,
                   ", which stands for NaN; the file is damaged");
    }
    const std::array<std::uint16_t, 16>& values = table[scales[g]];
    const std::uint8_t* from = codes + g * (kGroup / 2);
    std::uint16_t* out = to + g * kGroup;
    bool bad = false;
    for (std::int64_t i = 0; i < kGroup / 2; ++i) {
      out[2 * i] = values[from[i] & 15];
      out[2 * i + 1] = values[from[i] >> 4];
      bad |= !is_finite_bf16(out[2 * i]) || !is_finite_bf16(out[2 * i + 1]);
    }
    if (!bad) continue;
    std::int64_t i = 0;
    while (is_finite_bf16(out[i])) ++i;
    return not_finite((first + g) * kGroup + i);
  }
  return {};
}

void QuantisedTensor::drop_pages() const {
  checkpoint_->drop_pages(*codes_);
  checkpoint_->drop_pages(*scales_);
}

Result<std::shared_ptr<std::uint16_t>> quantised_memory(std::int64_t elements) {
  CADRE_ASSIGN(const Buffer buffer, make_cpu_device()->allocate(static_cast<std::size_t>(elements) * 2));
  auto* data = static_cast<std::uint16_t*>(buffer.data());
  return std::shared_ptr<std::uint16_t>(data, [buffer](std::uint16_t*) {});
}

std::int64_t weight_memory(const Checkpoint& checkpoint, const Quantisation& quantisation) {
  std::uint64_t bytes = 0;
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    const auto belongs = [&](std::string_view suffix, std::string_view codes_suffix, DType dtype) {
      if (!name.ends_with(suffix)) return false;
      const std::string base(name.substr(0, name.size() - suffix.size()));
      const TensorInfo* codes = checkpoint.find(base + std::string(codes_suffix));
      return codes != nullptr && codes->dtype == dtype;
    };
    switch (quantisation.method) {
      case Quantisation::Method::kFp8:
        if (belongs(kScaleSuffix, "", DType::kF8E4M3)) continue;
        bytes += tensor.dtype == DType::kF8E4M3 ? 2 * tensor.nbytes : tensor.nbytes;
        break;
      case Quantisation::Method::kMxfp4:
        if (belongs(kScalesSuffix, kBlocksSuffix, DType::kU8)) continue;
        bytes += name.ends_with(kBlocksSuffix) && tensor.dtype == DType::kU8 ? 4 * tensor.nbytes : tensor.nbytes;
        break;
      case Quantisation::Method::kNone:
        bytes += tensor.nbytes;
        break;
    }
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace cadre
