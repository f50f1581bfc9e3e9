// PEFT's target_parameters on the stacked weights of all experts. Each targeted parameter gets a wrapper around the
// experts module; wrappers nest, and the parameter that the module registers first (gate and up) is the inner one:
//   <experts>.base_layer.lora_{A,B}.weight  gate and up ("up" without a gate)
//   <experts>.lora_{A,B}.weight             down; or the only parameter that is targeted
//   lora_A  [E*r, in]    expert slowest: row e*r + k
//   lora_B  [out, r*E]   expert fastest: column k*E + e  (b_order=expert_major: column e*r + k)
// or, as Megatron-Bridge stacks them for other servers, the same numbers with dimensions of their own:
//   lora_A  [E, r, in], or [1, r, in] where all experts share it
//   lora_B  [out, r, E], or [out, r, 1]  (b_order=expert_major: [out, E, r])
// For gate and up together, out is 2I: first the gate's rows, then up's, or alternating; both share A.
//
// PEFT up to 0.18 took the parameter's dimensions the other way around: A sized by out, B by in, and the delta
// transposed. With the same packing, B' of expert e is then the transpose of A's rows and A' the transpose of B's
// columns ("swapped"). Nothing in the file says which it is, so shapes decide; a square parameter goes by the others of
// the file. Models whose parameter is stored as [E, in, out] never had it swapped.
#include <map>

#include "base/result.h"
#include "lora/formats/format.h"

namespace cadre {
namespace {

// One wrapper of one layer.
struct Wrapper {
  int experts = 0;
  bool down = false;  // or gate and up
  TensorPair pair;
  std::int64_t in = 0, out = 0;               // of the parameter, for one expert
  View a, b;                                  // [a_experts * r, .] and [., r * b_experts]
  std::int64_t a_experts = 0, b_experts = 0;  // 1 where all experts share it
  bool own_dimensions = false;                // in the file
  bool fits_peft = false, fits_swapped = false;
};

bool claims(const FileTensor& tensor, const AdapterTargets&) {
  return (tensor.part == TensorPart::kLoraA || tensor.part == TensorPart::kLoraB) && tensor.ref.experts >= 0 &&
         (tensor.ref.rest.empty() || tensor.ref.rest == "base_layer");
}

// The experts module's path as the file spells it.
std::string_view file_module(const TensorPair& pair) {
  std::string_view module = pair.a->module;
  if (!pair.a->ref.rest.empty()) module.remove_suffix(std::string_view(".base_layer").size());
  return module;
}

std::string parameter_name(std::string_view module, const ExpertsTarget& target, bool down) {
  return std::string(module) + "." + (down ? target.stacked_down_name : target.stacked_up_name);
}

Wrapper make_wrapper(const AdapterBuilder& builder, int experts, const TensorPair& pair, bool down) {
  const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(experts)];
  Wrapper w;
  w.experts = experts;
  w.down = down;
  w.pair = pair;
  w.in = down ? target.intermediate : target.width;
  w.out = down ? target.width : target.intermediate * (target.gated ? 2 : 1);
  w.a = pair.a->view;
  w.b = pair.b->view;
  w.a_experts = w.b_experts = target.experts;
  if (w.a.rank == 3 && w.b.rank == 3) {
    w.own_dimensions = true;
    w.a_experts = w.a.dim(0);
    w.b_experts = w.b.dim(builder.options().b_order == BOrder::kExpertMajor ? 1 : 2);
    w.a = w.a.reshaped({w.a.dim(0) * w.a.dim(1), w.a.dim(2)});
    w.b = w.b.reshaped({w.b.dim(0), w.b.dim(1) * w.b.dim(2)});
  }
  if (w.a.rank != 2 || w.b.rank != 2) return w;
  w.fits_peft = w.a.dim(1) == w.in && w.b.dim(0) == w.out;
  w.fits_swapped = !target.transposed && w.a.dim(1) == w.out && w.b.dim(0) == w.in;
  return w;
}

bool admissible(const Wrapper& w, Orientation orientation) {
  return (w.fits_peft && orientation != Orientation::kSwapped) || (w.fits_swapped && orientation != Orientation::kPeft);
}

// The only wrapper of a layer: target_parameters says which parameter it is, or else the shapes do.
Result<Wrapper> single_wrapper(const AdapterBuilder& builder, int experts, const TensorPair& pair) {
  const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(experts)];
  const auto listed = [&](bool down) {
    return builder.config().targets_parameter(parameter_name(file_module(pair), target, down)) ||
           builder.config().targets_parameter(parameter_name(target.module, target, down));
  };
  const bool up_listed = listed(false), down_listed = listed(true);
  if (up_listed != down_listed) return make_wrapper(builder, experts, pair, down_listed);
  const Wrapper up = make_wrapper(builder, experts, pair, false), down = make_wrapper(builder, experts, pair, true);
  const Orientation orientation = builder.options().orientation;
  if (admissible(up, orientation) && admissible(down, orientation)) {
    return error(Code::kInvalidFile, quoted(*pair.a), " may belong to '", target.stacked_up_name, "' or to '",
                 target.stacked_down_name, "'; list the right one alone in target_parameters of ",
                 builder.config().source());
  }
  return admissible(down, orientation) ? down : up;
}

Result<std::vector<Wrapper>> find_wrappers(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  CADRE_ASSIGN(const std::vector<TensorPair> pairs, pair_up(tensors));
  struct Nest {
    TensorPair inner, outer;
  };
  std::map<int, Nest> nests;
  for (const TensorPair& pair : pairs) {
    Nest& nest = nests[pair.a->ref.experts];
    (pair.a->ref.rest.empty() ? nest.outer : nest.inner) = pair;
  }
  std::vector<Wrapper> wrappers;
  for (const auto& [experts, nest] : nests) {
    if (nest.outer.a == nullptr) {
      return error(Code::kInvalidFile, quoted(*nest.inner.a), " is of an inner wrapper, and the outer one's '",
                   file_module(nest.inner), ".lora_A.weight' is missing: the file is not complete");
    }
    if (nest.inner.a == nullptr) {
      CADRE_ASSIGN(const Wrapper single, single_wrapper(builder, experts, nest.outer));
      wrappers.push_back(single);
    } else {
      wrappers.push_back(make_wrapper(builder, experts, nest.inner, false));
      wrappers.push_back(make_wrapper(builder, experts, nest.outer, true));
    }
  }
  return wrappers;
}

Status check_fits(const AdapterBuilder& builder, const Wrapper& w) {
  if (w.fits_peft || w.fits_swapped) return {};
  const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(w.experts)];
  const std::string name = parameter_name(target.module, target, w.down);
  if (w.pair.a->view.rank > 2 || w.pair.b->view.rank > 2) {
    return error(Code::kInvalidFile, quoted(*w.pair.a), " is ", describe(*w.pair.a->info), " and its lora_B ",
                 describe(*w.pair.b->info), "; for '", name,
                 "' with a dimension of its own for the experts want lora_A [", target.experts, ", r, ", w.in,
                 "] and lora_B [", w.out, ", r, ", target.experts,
                 "], or two dimensions as PEFT saves them: adapter of another model?");
  }
  std::string swapped;
  if (!target.transposed) {
    swapped = ", or " + std::to_string(w.out) + " columns and " + std::to_string(w.in) + " rows (PEFT 0.18 and older)";
  }
  return error(Code::kInvalidFile, quoted(*w.pair.a), " is ", describe(*w.pair.a->info), " and its lora_B ",
               describe(*w.pair.b->info), "; for '", name, "' want lora_A with ", w.in, " columns and lora_B with ",
               w.out, " rows", swapped, ": adapter of another model?");
}

// One orientation for the whole file, as one version of PEFT wrote it.
Result<Orientation> decide(const AdapterBuilder& builder, std::span<const Wrapper> wrappers) {
  const Orientation asked = builder.options().orientation;
  const Wrapper *peft = nullptr, *swapped = nullptr, *square = nullptr;
  for (const Wrapper& w : wrappers) {
    CADRE_TRY(check_fits(builder, w));
    const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(w.experts)];
    if (target.transposed) {
      if (asked == Orientation::kSwapped) {
        return error(Code::kInvalidArgument, "orientation=swapped: the experts '", target.module,
                     "' are stored as [experts, in, out], which PEFT never swaps; leave the option out");
      }
      return Orientation::kPeft;  // and so are the experts of all layers
    }
    const Wrapper*& witness = w.fits_peft && w.fits_swapped ? square : w.fits_peft ? peft : swapped;
    if (witness == nullptr) witness = &w;
  }
  if (peft != nullptr && swapped != nullptr) {
    return error(Code::kInvalidFile, quoted(*peft->pair.a), " is in the orientation of PEFT 0.19 and later, and '",
                 swapped->pair.a->info->name, "' in that of PEFT 0.18 and older; one file has one orientation");
  }
  const Wrapper* against = asked == Orientation::kPeft ? swapped : asked == Orientation::kSwapped ? peft : nullptr;
  if (against != nullptr) {
    return error(Code::kInvalidArgument, "orientation=", asked == Orientation::kPeft ? "peft" : "swapped",
                 " contradicts ", quoted(*against->pair.a), ", which is ", describe(*against->pair.a->info),
                 " with lora_B ", describe(*against->pair.b->info), "; leave the option out");
  }
  if (asked != Orientation::kAuto) return asked;
  if (peft != nullptr) return Orientation::kPeft;
  if (swapped != nullptr) return Orientation::kSwapped;
  return error(Code::kInvalidFile, quoted(*square->pair.a), " is of a square parameter (", square->in, " by ",
               square->out,
               "), and no other tensor of the file shows its orientation; add orientation=peft if PEFT 0.19 "
               "or later wrote the file, orientation=swapped if an older one did");
}

View matrix(const View& base, std::int64_t offset, std::int64_t rows, std::int64_t columns, std::int64_t row_step,
            std::int64_t column_step) {
  View v = base;
  v.data = static_cast<std::byte*>(base.data) + offset * dtype_bits(base.dtype) / 8;
  v.shape[0] = rows;
  v.shape[1] = columns;
  v.stride[0] = row_step;
  v.stride[1] = column_step;
  return v;
}

// That the file's own dimensions for experts and rank are those of the model and the config.
Status check_dimensions(const AdapterBuilder& builder, const Wrapper& w, const AdapterConfig::Term& term) {
  const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(w.experts)];
  const bool expert_major = builder.options().b_order == BOrder::kExpertMajor;
  const auto wrong_count = [&](std::int64_t count) { return count != 1 && count != target.experts; };
  if (wrong_count(w.a_experts)) {
    return error(Code::kInvalidFile, quoted(*w.pair.a), " is ", describe(*w.pair.a->info), ", which is of ",
                 w.a_experts, " experts, and '", target.module, "' has ", target.experts,
                 ": adapter of another model?");
  }
  if (w.pair.a->view.dim(1) != term.rank) {
    return wrong_rank(*w.pair.a, w.pair.a->view.dim(1), term, builder.config());
  }
  const std::int64_t rank = w.pair.b->view.dim(expert_major ? 2 : 1);
  if (wrong_count(w.b_experts) || rank != term.rank) {
    return error(Code::kInvalidFile, quoted(*w.pair.b), " is ", describe(*w.pair.b->info), ", want [", w.b.dim(0),
                 expert_major ? ", experts, r]" : ", r, experts]", " with ", target.experts, " or 1 experts and rank ",
                 term.rank, " of ", builder.config().source(),
                 "; the option b_order=", expert_major ? "peft" : "expert_major",
                 " is for the other order of these two");
  }
  return {};
}

Status bind(AdapterBuilder& builder, const Wrapper& w, Orientation orientation) {
  const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(w.experts)];
  CADRE_ASSIGN(const AdapterConfig::Term term,
               builder.config().term(parameter_name(file_module(w.pair), target, w.down),
                                     parameter_name(target.module, target, w.down)));
  const View &a = w.a, &b = w.b;
  const std::int64_t experts = target.experts, rank = term.rank, flat = w.b_experts * rank;
  if (w.own_dimensions) {
    CADRE_TRY(check_dimensions(builder, w, term));
  } else if (a.dim(0) != flat || b.dim(1) != flat) {
    const bool a_wrong = a.dim(0) != flat;
    const std::int64_t got = a_wrong ? a.dim(0) : b.dim(1);
    const FileTensor& tensor = a_wrong ? *w.pair.a : *w.pair.b;
    if (got % experts == 0) return wrong_rank(tensor, got / experts, term, builder.config());
    return error(Code::kInvalidFile, quoted(tensor), " is ", describe(*tensor.info), ", and ", got,
                 " is not a multiple of the ", experts, " experts of '", target.module, "': adapter of another model?");
  }
  const bool expert_major = builder.options().b_order == BOrder::kExpertMajor;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t of_a = w.a_experts == 1 ? 0 : e, of_b = w.b_experts == 1 ? 0 : e;
    const View a_e = matrix(a, of_a * rank * a.dim(1), rank, a.dim(1), a.dim(1), 1);
    const View b_e = expert_major ? matrix(b, of_b * rank, b.dim(0), rank, flat, 1)
                                  : matrix(b, of_b, b.dim(0), rank, flat, w.b_experts);
    const bool swapped = orientation == Orientation::kSwapped;
    LowRank delta{swapped ? b_e.transposed() : a_e, swapped ? a_e.transposed() : b_e, term.scale};
    const int expert = static_cast<int>(e);
    if (w.down || !target.gated) {
      const auto projection = w.down ? ExpertProjection::kDown : ExpertProjection::kUp;
      CADRE_TRY(builder.set_expert(w.experts, projection, expert, delta, *w.pair.a));
      continue;
    }
    const View both = delta.b;
    for (const auto projection : {ExpertProjection::kGate, ExpertProjection::kUp}) {
      delta.b = half_of_rows(both, projection == ExpertProjection::kUp, target);
      CADRE_TRY(builder.set_expert(w.experts, projection, expert, delta, *w.pair.a));
    }
  }
  builder.count_zero_b(*w.pair.b);
  return {};
}

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  CADRE_ASSIGN(const std::vector<Wrapper> wrappers, find_wrappers(builder, tensors));
  CADRE_ASSIGN(const Orientation orientation, decide(builder, wrappers));
  std::string name(kPeftStackedFormat.name);
  name += orientation == Orientation::kPeft ? " (peft orientation" : " (swapped orientation";
  if (builder.options().b_order == BOrder::kExpertMajor) name += ", expert-major B";
  bool own_dimensions = false, shared = false;
  for (const Wrapper& w : wrappers) {
    const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(w.experts)];
    own_dimensions |= w.own_dimensions;
    shared |= target.experts > 1 && (w.a_experts == 1 || w.b_experts == 1);
  }
  if (own_dimensions) name += ", 3-D";
  if (shared) name += ", shared outer";
  builder.add_format(name + ")");
  for (const Wrapper& w : wrappers) CADRE_TRY(bind(builder, w, orientation));
  return {};
}

}  // namespace

const AdapterFormat kPeftStackedFormat = {"peft stacked", claims, read};

}  // namespace cadre
