#include "lora/formats/packed.h"

#include <algorithm>

#include "base/result.h"

namespace cadre {
namespace {

struct Packed {
  const ExpertsTarget* target = nullptr;
  PackedName name;
  TensorPair pair;
  std::int64_t in = 0, out = 0;
  AdapterConfig::Term term;
  bool own_a = false;  // gate and up have an A each, in one tensor

  bool both() const { return name.gate && name.up; }
  bool shares(const FileTensor& tensor) const { return target->experts > 1 && tensor.view.dim(0) == 1; }
};

Status wrong_dimensions(const Packed& p, const FileTensor& tensor, std::int64_t rows, std::int64_t columns) {
  const std::int64_t own[] = {p.target->experts, rows, columns}, shared[] = {1, rows, columns};
  return error(Code::kInvalidFile, quoted(tensor), " is ", describe(*tensor.info), ", want ", shape_text(own), ", or ",
               shape_text(shared), " where the experts share it: adapter of another model?");
}

Status check(const AdapterBuilder& builder, Packed& p) {
  const FileTensor &a = *p.pair.a, &b = *p.pair.b;
  const std::int64_t rank = p.term.rank;
  const auto fits = [&](const View& view, int fixed, std::int64_t size) {
    return view.rank == 3 && view.dim(fixed) == size && (view.dim(0) == 1 || view.dim(0) == p.target->experts);
  };
  if (!fits(a.view, 2, p.in)) return wrong_dimensions(p, a, rank, p.in);
  if (!fits(b.view, 1, p.out)) return wrong_dimensions(p, b, p.out, rank);
  p.own_a = p.both() && a.view.dim(1) == 2 * rank;
  if (a.view.dim(1) != rank && !p.own_a) return wrong_rank(a, a.view.dim(1), p.term, builder.config());
  if (b.view.dim(2) != rank) return wrong_rank(b, b.view.dim(2), p.term, builder.config());
  return {};
}

Status bind(AdapterBuilder& builder, const Packed& p) {
  const View &a = p.pair.a->view, &b = p.pair.b->view;
  const std::int64_t rank = p.term.rank;
  for (int e = 0; e < p.target->experts; ++e) {
    const View a_e = a.at(a.dim(0) == 1 ? 0 : e), b_e = b.at(b.dim(0) == 1 ? 0 : e);
    const auto set = [&](ExpertProjection projection) -> Status {
      const bool up = projection == ExpertProjection::kUp;
      LowRank term{a_e, b_e, p.term.scale};
      if (p.own_a) term.a = a_e.slice(0, up ? rank : 0, up ? 2 * rank : rank);
      if (p.both()) term.b = half_of_rows(b_e, up, *p.target);
      return builder.set_expert(p.pair.a->ref.experts, projection, e, term, *p.pair.a);
    };
    if (p.name.gate) CADRE_TRY(set(ExpertProjection::kGate));
    if (p.name.up) CADRE_TRY(set(ExpertProjection::kUp));
    if (p.name.down) CADRE_TRY(set(ExpertProjection::kDown));
  }
  builder.count_zero_b(*p.pair.b);
  return {};
}

}  // namespace

Status read_packed(AdapterBuilder& builder, std::span<const FileTensor* const> tensors, std::string_view format,
                   PackedName (*meaning)(std::string_view name, const ExpertsTarget& target)) {
  CADRE_ASSIGN(const std::vector<TensorPair> pairs, pair_up(tensors));
  bool shared = false;
  for (const TensorPair& pair : pairs) {
    const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(pair.a->ref.experts)];
    Packed p{&target, meaning(pair.a->ref.rest, target), pair};
    if (!p.name.any()) {
      return error(Code::kInvalidFile, quoted(*pair.a), " is of '", pair.a->ref.rest, "', and '", target.module,
                   "' has no gate: adapter of another model?");
    }
    p.in = p.name.down ? target.intermediate : target.width;
    p.out = p.name.down ? target.width : target.intermediate * (p.both() ? 2 : 1);
    CADRE_ASSIGN(p.term, builder.config().term(pair.a->module, target.module + "." + pair.a->ref.rest));
    CADRE_TRY(check(builder, p));
    CADRE_TRY(bind(builder, p));
    shared |= p.shares(*pair.a) || p.shares(*pair.b);
  }
  builder.add_format(std::string(format) + (shared ? " (shared outer)" : ""));
  return {};
}

bool is_packed(const FileTensor& tensor, std::span<const std::string_view> names) {
  return (tensor.part == TensorPart::kLoraA || tensor.part == TensorPart::kLoraB) && tensor.ref.experts >= 0 &&
         std::find(names.begin(), names.end(), tensor.ref.rest) != names.end();
}

}  // namespace cadre
