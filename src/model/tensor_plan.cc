#include "model/tensor_plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "model/config_fields.h"

namespace cadre {
namespace {

// Far above the largest published models (a million million parameters in some 70,000 matrices).
constexpr std::size_t kMaxTensors = std::size_t{1} << 18;
constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 44;

// What published checkpoints keep in float32 beside bfloat16 matrices.
constexpr std::array<std::string_view, 3> kFloat32 = {"e_score_correction_bias", ".A_log", ".expert_bias"};

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

// Zeros that take no memory until they are written, which they cannot be.
Result<std::shared_ptr<const void>> map_zeros(std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return error(Code::kOutOfMemory, "cannot map ", bytes, " bytes: ", std::generic_category().message(errno));
  }
  return std::shared_ptr<const void>(at, [bytes](const void* p) { ::munmap(const_cast<void*>(p), bytes); });
}

}  // namespace

Result<DType> config_dtype(const Json& json) {
  const std::string_view key = json.has("dtype") ? "dtype" : "torch_dtype";
  CADRE_ASSIGN(const std::string name, json.get_string_or(key, "bfloat16"));
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    if (name == dtype_name(dtype) || name == "torch." + std::string(dtype_name(dtype))) return dtype;
  }
  return error(Code::kUnsupported, json.where(key), " is '", name, "', want bfloat16, float16 or float32");
}

bool TensorPlanner::has(const std::string& name) const {
  constexpr std::string_view kBlocks = "_blocks";
  if (name.ends_with(kBlocks)) {
    return quantisation_.method == Quantisation::Method::kMxfp4 &&
           quantises(name.substr(0, name.size() - kBlocks.size()));
  }
  if (name == "lm_head.weight") return own_head_;
  return ends_with_any(name, family_.published);
}

bool TensorPlanner::is_row(const std::string& name) const {
  return name.ends_with(".moe_statics.e_score_correction_bias");  // Ernie's
}

bool TensorPlanner::quantises(const std::string& name) const {
  switch (quantisation_.method) {
    case Quantisation::Method::kNone:
      return false;
    case Quantisation::Method::kMxfp4:
      return name.ends_with(".experts.gate_up_proj") || name.ends_with(".experts.down_proj");
    case Quantisation::Method::kFp8:
      break;
  }
  // Attention and experts; routers, norms, the embedding and the head stay as they are. Stacked ones have no ".weight".
  static constexpr std::array<std::string_view, 5> kMatrices = {"_proj.weight", "_proj_with_mqa.weight", ".w1.weight",
                                                                ".w2.weight", ".w3.weight"};
  if (name.find(".layers.") == name.npos) return false;
  return ends_with_any(name, kMatrices) || name.ends_with(".experts.down_proj") ||
         (name.ends_with(".experts.gate_up_proj") && has(name));
}

Status TensorPlanner::add(Checkpoint& checkpoint, std::string name, DType dtype, std::vector<std::int64_t> shape) {
  std::uint64_t bytes = static_cast<std::uint64_t>(dtype_bits(dtype)) / 8;
  for (const std::int64_t size : shape) {
    if (size <= 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes) ||
        bytes > kMaxTensorBytes) {
      return error(Code::kLimitExceeded, checkpoint.folder(), ": tensor '", name, "' would have shape ",
                   shape_text(shape), ", want at most ", kMaxTensorBytes, " bytes");
    }
  }
  if (checkpoint.tensor_count() >= kMaxTensors) {
    return error(Code::kLimitExceeded, checkpoint.folder(), ": the config asks for too many tensors, want at most ",
                 kMaxTensors);
  }
  if (bytes > zeros_bytes_) {
    const std::uint64_t room = std::max(bytes, std::min(2 * zeros_bytes_, kMaxTensorBytes));
    CADRE_ASSIGN(zeros_, map_zeros(room));
    zeros_bytes_ = room;
  }
  TensorInfo tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = static_cast<const std::byte*>(zeros_.get());
  tensor.nbytes = bytes;
  tensor.file = std::make_shared<const std::string>(checkpoint.folder());
  return checkpoint.add_made(std::move(tensor), zeros_);
}

Status TensorPlanner::make(Checkpoint& checkpoint, const std::string& name, Dims shape) {
  std::vector<std::int64_t> sizes(shape);
  if (!quantises(name)) {
    const bool wide = ends_with_any(name, kFloat32);
    return add(checkpoint, name, wide ? DType::kF32 : dtype_, std::move(sizes));
  }
  if (quantisation_.method == Quantisation::Method::kMxfp4) {
    std::vector<std::int64_t> blocks = sizes;
    if (blocks.back() % 32 != 0) {
      return error(Code::kUnsupported, checkpoint.folder(), ": tensor '", name, "' has rows of ", blocks.back(),
                   ", want a multiple of 32 for MXFP4");
    }
    blocks.back() /= 32;
    CADRE_TRY(add(checkpoint, name + "_scales", DType::kU8, blocks));
    blocks.push_back(16);
    return add(checkpoint, name + "_blocks", DType::kU8, std::move(blocks));
  }
  std::vector<std::int64_t> factors = sizes;
  const auto up = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
  const std::size_t last = factors.size() - 1;
  factors[last] = up(factors[last], quantisation_.block_columns);
  factors[last - 1] = up(factors[last - 1], quantisation_.block_rows);
  CADRE_TRY(add(checkpoint, name, DType::kF8E4M3, std::move(sizes)));
  return add(checkpoint, name + "_scale_inv", DType::kF32, std::move(factors));
}

Result<TensorPlan> plan_tensors(const ModelConfig& config, const std::string& called) {
  CADRE_ASSIGN(const Family* family, find_family(config.model_type).with_context(called));
  CADRE_ASSIGN(const DType dtype, config_dtype(config.json));
  TensorPlanner planner(*family, config, dtype);
  TensorPlan plan;
  plan.checkpoint = Checkpoint::made(called);
  WeightLoader loader(plan.checkpoint, make_cpu_device(), config.quantisation, planner);
  Builder builder(config, loader, Ranks{});
  Network network;
  builder.targets.model_type = config.model_type;
  CADRE_TRY(family->build(builder, network));
  CADRE_TRY(refuse_unknown_fields(config, builder.ignored_fields));
  const auto is_quantised = [](const TensorInfo& tensor) { return !is_float_weight(tensor.dtype); };
  const auto& tensors = plan.checkpoint->made_tensors();
  if (config.quantisation.method != Quantisation::Method::kNone &&
      std::none_of(tensors.begin(), tensors.end(), is_quantised)) {
    return error(Code::kUnsupported, called, ": no tensor of ", config.model_type, " is stored as ",
                 config.quantisation.name(), "; take quantization_config out");
  }
  plan.targets = std::move(builder.targets);
  for (const MoeLayer& layer : builder.moe_layers) plan.moe_layers.emplace_back(layer.layer, layer.spec);
  plan.states = std::move(builder.states);
  for (const Block& block : network.blocks) plan.mixers.emplace_back(block.mixer->kind());
  return plan;
}

}  // namespace cadre
