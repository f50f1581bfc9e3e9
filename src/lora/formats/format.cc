#include "lora/formats/format.h"

#include <algorithm>
#include <tuple>

#include "base/result.h"

namespace cadre {
namespace {

Status bound_twice(const FileTensor& from) {
  return error(Code::kInvalidFile, quoted(from), ": another tensor of the file already binds to the same place");
}

bool is_a(const FileTensor& tensor) {
  return tensor.part == TensorPart::kLoraA || tensor.part == TensorPart::kEmbeddingA;
}

}  // namespace

void AdapterBuilder::add_format(std::string_view name) {
  std::string& format = adapter_.report.format;
  if (!format.empty()) format += " + ";
  format += name;
}

Status AdapterBuilder::set_delta(int dense, const LowRank& term, const FileTensor& from) {
  LowRank& place = adapter_.dense[dense].delta;
  if (place.a.defined()) return bound_twice(from);
  place = term;
  return {};
}

bool AdapterBuilder::has_replacement(int dense) const {
  const auto at = adapter_.dense.find(dense);
  return at != adapter_.dense.end() && at->second.replacement.defined();
}

Status AdapterBuilder::set_replacement(int dense, const View& weight, const FileTensor& from) {
  if (has_replacement(dense)) return bound_twice(from);
  adapter_.dense[dense].replacement = weight;
  return {};
}

Status AdapterBuilder::set_expert(int experts, ExpertProjection projection, int expert, const LowRank& term,
                                  const FileTensor& from) {
  LayerLora& layer = adapter_.experts[experts];
  std::vector<LowRank>& terms = projection == ExpertProjection::kGate ? layer.gate
                                : projection == ExpertProjection::kUp ? layer.up
                                                                      : layer.down;
  if (terms.empty())
    terms.resize(static_cast<std::size_t>(targets_.experts[static_cast<std::size_t>(experts)].experts));
  LowRank& place = terms[static_cast<std::size_t>(expert)];
  if (place.a.defined()) return bound_twice(from);
  place = term;
  return {};
}

void AdapterBuilder::count_zero_b(const FileTensor& b) {
  ++pairs_;
  if (!b.zero) return;
  if (zero_pairs_++ == 0) first_zero_ = b.info->name;
}

void AdapterBuilder::note_zero_b() {
  if (zero_pairs_ == 0) return;
  std::ostringstream text;
  text << "lora_B is all zero in " << zero_pairs_ << " of " << pairs_ << " pairs, e.g. '" << first_zero_
       << "': the adapter changes nothing there";
  note(std::move(text).str());
}

void AdapterBuilder::note_zero_scale() {
  int terms = 0, zero = 0;
  std::string first;
  const auto count = [&](const LowRank& term, const std::string& module) {
    if (term.rank() == 0) return;
    ++terms;
    if (term.scale != 0) return;
    if (zero++ == 0) first = module;
  };
  for (const auto& [index, lora] : adapter_.dense) {
    count(lora.delta, targets_.dense[static_cast<std::size_t>(index)].module);
  }
  for (const auto& [index, lora] : adapter_.experts) {
    for (const auto* list : {&lora.gate, &lora.up, &lora.down}) {
      for (const LowRank& term : *list) count(term, targets_.experts[static_cast<std::size_t>(index)].module);
    }
  }
  if (zero == 0) return;
  std::ostringstream text;
  text << "the scale is 0 in " << zero << " of " << terms << " terms, e.g. of '" << first << "' ("
       << (config_.alpha() == 0 ? "lora_alpha" : "alpha_pattern") << " is 0): the adapter changes nothing there";
  note(std::move(text).str());
}

std::string quoted(const FileTensor& tensor) {
  return "tensor '" + tensor.info->name + "' of " + (tensor.info->file ? *tensor.info->file : std::string("the file"));
}

Result<std::vector<TensorPair>> pair_up(std::span<const FileTensor* const> tensors) {
  std::vector<const FileTensor*> sorted(tensors.begin(), tensors.end());
  const auto place = [](const FileTensor* t) {
    return std::tuple(t->ref.dense, t->ref.experts, std::string_view(t->ref.rest));
  };
  // Equal places keep the order of the file: the tensors are elements of one array.
  std::sort(sorted.begin(), sorted.end(), [&](const FileTensor* x, const FileTensor* y) {
    return std::tuple_cat(place(x), std::tuple(x)) < std::tuple_cat(place(y), std::tuple(y));
  });
  std::vector<TensorPair> pairs;
  for (std::size_t i = 0; i < sorted.size();) {
    TensorPair pair;
    std::size_t end = i;
    for (; end < sorted.size() && place(sorted[end]) == place(sorted[i]); ++end) {
      const FileTensor*& slot = is_a(*sorted[end]) ? pair.a : pair.b;
      if (slot != nullptr) {
        return error(Code::kInvalidFile, quoted(*sorted[end]), " and '", slot->info->name,
                     "' bind to the same place; keep one adapter in a file");
      }
      slot = sorted[end];
    }
    if (pair.a == nullptr || pair.b == nullptr) {
      return error(Code::kInvalidFile, quoted(*sorted[i]), " has no ", pair.a == nullptr ? "lora_A" : "lora_B",
                   " beside it: the file is not complete");
    }
    pairs.push_back(pair);
    i = end;
  }
  return pairs;
}

Status wrong_shape(const FileTensor& tensor, std::int64_t rows, std::int64_t columns) {
  const std::int64_t want[] = {rows, columns};
  return error(Code::kInvalidFile, quoted(tensor), " is ", describe(*tensor.info), ", want ", shape_text(want),
               ": adapter of another model?");
}

Status wrong_rank(const FileTensor& tensor, std::int64_t got, const AdapterConfig::Term& want,
                  const AdapterConfig& config) {
  return error(Code::kInvalidFile, quoted(tensor), " is ", describe(*tensor.info), ", which is rank ", got, ", but ",
               config.source(), " gives it rank ", want.rank, "; correct r or rank_pattern there");
}

View half_of_rows(const View& both, bool up, const ExpertsTarget& target) {
  const std::int64_t half = target.intermediate;
  if (!target.interleaved) return both.slice(0, up ? half : 0, up ? 2 * half : half);
  View rows = both;
  if (up) rows.data = static_cast<std::byte*>(both.data) + both.step(0) * dtype_bits(both.dtype) / 8;
  rows.shape[0] = half;
  rows.stride[0] = 2 * both.step(0);
  return rows;
}

Result<LowRank> plain_term(const AdapterBuilder& builder, const TensorPair& pair, std::int64_t in, std::int64_t out,
                           std::string_view model_name) {
  const AdapterConfig& config = builder.config();
  std::string name(pair.a->module), also(model_name);
  // A 2-D parameter may be targeted as a parameter ("mlp.gate.weight"), and is then matched by that name.
  if (!config.target_parameters().empty() &&
      (config.targets_parameter(name + ".weight") || config.targets_parameter(also + ".weight"))) {
    name += ".weight";
    also += ".weight";
  }
  CADRE_ASSIGN(const AdapterConfig::Term term, config.term(name, also));
  const View &a = pair.a->view, &b = pair.b->view;
  if (a.rank != 2 || a.dim(1) != in) return wrong_shape(*pair.a, term.rank, in);
  if (b.rank != 2 || b.dim(0) != out) return wrong_shape(*pair.b, out, term.rank);
  if (a.dim(0) != term.rank) return wrong_rank(*pair.a, a.dim(0), term, config);
  if (b.dim(1) != term.rank) return wrong_rank(*pair.b, b.dim(1), term, config);
  return LowRank{a, b, term.scale};
}

Status read_dense_pairs(AdapterBuilder& builder, std::span<const FileTensor* const> tensors, std::string_view format) {
  builder.add_format(format);
  CADRE_ASSIGN(const std::vector<TensorPair> pairs, pair_up(tensors));
  for (const TensorPair& pair : pairs) {
    const int index = pair.a->ref.dense;
    const DenseTarget& target = builder.targets().dense[static_cast<std::size_t>(index)];
    CADRE_ASSIGN(const LowRank term, plain_term(builder, pair, target.in, target.out, target.module));
    CADRE_TRY(builder.set_delta(index, term, *pair.a));
    builder.count_zero_b(*pair.b);
  }
  return {};
}

}  // namespace cadre
