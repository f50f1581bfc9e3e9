#include "model/builder.h"

#include "base/dot.h"
#include "base/result.h"
#include "model/blocks/moe_mixer.h"

namespace cadre {
namespace {

WeightType weight_type(DType dtype) {
  return dtype == DType::kBF16 ? WeightType::kBF16 : dtype == DType::kF16 ? WeightType::kF16 : WeightType::kF32;
}

}  // namespace

Result<std::int64_t> Builder::per_rank(std::int64_t n, const char* what) const {
  if (n % ranks.size != 0) {
    return error(Code::kUnsupported, what, " is ", n, ", which cannot be divided over ", ranks.size,
                 " ranks; use a tensor parallel size that divides it");
  }
  return n / ranks.size;
}

Status Builder::linear(Linear& out, const std::string& module, std::int64_t in, std::int64_t outputs,
                       const LinearOptions& options) {
  Ranges ranges = options.ranges;
  if (options.split != Split::kNone && ranks.size > 1 && ranges.empty()) {
    const std::int64_t whole = options.split == Split::kColumn ? outputs : in;
    CADRE_TRY(per_rank(whole, module.c_str()).status());
    ranges = {ranks.part(whole)};
  }
  if (ranks.size > 1 && options.split == Split::kColumn) out.rows_ = ranges;
  if (ranks.size > 1 && options.split == Split::kRow) out.columns_ = ranges;
  out.split_ = ranks.size > 1 ? options.split : Split::kNone;
  CADRE_ASSIGN(out.weight_, loader.device_tensor(module + ".weight", {outputs, in}, out.rows_, out.columns_));
  if (options.bias) {
    // A row-split Linear sums over ranks: only one of them adds the bias.
    CADRE_ASSIGN(const View bias, loader.device_tensor(module + ".bias", {outputs}, out.rows_));
    if (out.split_ != Split::kRow || ranks.rank == 0) out.bias_ = bias;
  }
  targets.dense.push_back({.module = module, .in = in, .out = outputs});
  sites.push_back({.linear = &out});
  return {};
}

Status Builder::embedding(Embedding& out, const std::string& module, std::int64_t vocab, std::int64_t hidden) {
  CADRE_ASSIGN(out.table_, loader.device_tensor(module + ".weight", {vocab, hidden}));
  targets.dense.push_back({.module = module, .in = vocab, .out = hidden, .embedding = true});
  sites.push_back({.embedding = &out});
  return {};
}

Status Builder::lm_head(Linear& out, const Embedding& embedding, bool bias) {
  const std::int64_t hidden = embedding.table().dim(1), vocab = embedding.table().dim(0);
  // A stored head counts, also where the config says tied: transformers keeps the two apart when both are there and
  // differ (NemotronH never ties), and uses the same numbers when they do not. Without a head and without a word on it
  // they are tied: transformers 4 leaves out what is the class's default.
  if (loader.has("lm_head.weight") || !config.tied_embeddings.value_or(true))
    return linear(out, "lm_head", hidden, vocab, {.bias = bias});
  out.weight_ = embedding.table();
  targets.dense.push_back({.module = "lm_head", .in = hidden, .out = vocab, .tied = true});
  sites.push_back({.linear = &out});
  return {};
}

Result<View> Builder::vector(const std::string& name, std::int64_t size, bool part) {
  Ranges ranges;
  if (part && ranks.size > 1) {
    CADRE_TRY(per_rank(size, name.c_str()).status());
    ranges = {ranks.part(size)};
  }
  if (loader.is_row(name)) {
    CADRE_ASSIGN(const View row, loader.device_tensor(name, {1, size}, {}, ranges));
    return row.at(0);
  }
  return loader.device_tensor(name, {size}, ranges);
}

Result<View> Builder::one_plus_vector(const std::string& name, std::int64_t size) {
  CADRE_ASSIGN(const View file, loader.host(name, {size}));
  auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    (*values)[static_cast<std::size_t>(i)] = 1.0f + element(file.data, file.dtype, i);
  }
  CADRE_ASSIGN(auto imported, loader.device().import(View(values->data(), DType::kF32, {size}), values));
  loader.keep(std::move(imported.second));
  return imported.first;
}

Result<Norm> Builder::norm(const std::string& module, std::int64_t size, float eps, const NormOptions& options) {
  Norm out;
  out.eps = eps;
  out.used = true;
  if (options.one_plus) {
    CADRE_ASSIGN(out.weight, one_plus_vector(module + ".weight", size));
  } else {
    CADRE_ASSIGN(out.weight, vector(module + ".weight", size));
  }
  if (options.layer_norm) {
    CADRE_ASSIGN(out.bias, vector(module + ".bias", size));
  }
  return out;
}

Result<int> Builder::add_state(const StateSpec& spec) {
  states.push_back(spec);
  return static_cast<int>(states.size()) - 1;
}

Status Builder::moe_layer(MoeMixer& mixer, int layer, const LayerSpec& spec, const ExpertNames& names) {
  MoeLayer entry;
  entry.layer = layer;
  entry.spec = spec;
  entry.mixer = &mixer;
  entry.target = static_cast<int>(targets.experts.size());
  CADRE_ASSIGN(OpenedExperts opened, open_expert_weights(loader, names, spec));
  entry.weights = std::move(opened.weights);
  entry.spec.weights.type = weight_type(opened.dtype);
  targets.experts.push_back({.module = names.module,
                             .layer = layer,
                             .experts = spec.experts,
                             .width = spec.expert_width(),
                             .intermediate = spec.intermediate,
                             .gated = spec.activation.gated,
                             .interleaved = names.interleaved,
                             .transposed = names.transposed,
                             .gate_name = names.gate,
                             .up_name = names.up,
                             .down_name = names.down,
                             .stacked_up_name = names.stacked_up,
                             .stacked_down_name = names.stacked_down});
  moe_layers.push_back(std::move(entry));
  return {};
}

}  // namespace cadre
