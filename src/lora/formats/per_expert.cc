// One A and one B for each expert and projection, for any subset of both:
//   <experts>.<expert>.<gate, up or down name>.lora_A.weight  [r, in]
//   <experts>.<expert>.<gate, up or down name>.lora_B.weight  [out, r]
#include <charconv>

#include "base/result.h"
#include "lora/formats/format.h"

namespace cadre {
namespace {

struct ExpertName {
  int expert = 0;
  std::string_view projection;
};
std::optional<ExpertName> parse(std::string_view rest) {
  ExpertName name;
  const auto [end, failed] = std::from_chars(rest.data(), rest.data() + rest.size(), name.expert);
  if (failed != std::errc() || end == rest.data() + rest.size() || *end != '.' || name.expert < 0) return std::nullopt;
  name.projection = rest.substr(static_cast<std::size_t>(end - rest.data()) + 1);
  return name;
}

bool claims(const FileTensor& tensor, const AdapterTargets&) {
  return (tensor.part == TensorPart::kLoraA || tensor.part == TensorPart::kLoraB) && tensor.ref.experts >= 0 &&
         parse(tensor.ref.rest).has_value();
}

Status read(AdapterBuilder& builder, std::span<const FileTensor* const> tensors) {
  builder.add_format(kPerExpertFormat.name);
  CADRE_ASSIGN(const std::vector<TensorPair> pairs, pair_up(tensors));
  std::string model_name;
  for (const TensorPair& pair : pairs) {
    const int index = pair.a->ref.experts;
    const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(index)];
    const ExpertName name = parse(pair.a->ref.rest).value_or(ExpertName{});
    if (name.expert >= target.experts) {
      return error(Code::kInvalidFile, quoted(*pair.a), " is of expert ", name.expert, ", and '", target.module,
                   "' has experts 0 to ", target.experts - 1, ": adapter of another model?");
    }
    ExpertProjection projection;
    if (target.gated && name.projection == target.gate_name) {
      projection = ExpertProjection::kGate;
    } else if (name.projection == target.up_name) {
      projection = ExpertProjection::kUp;
    } else if (name.projection == target.down_name) {
      projection = ExpertProjection::kDown;
    } else {
      return error(Code::kInvalidFile, quoted(*pair.a), ": experts of this model have no projection '", name.projection,
                   "', want one of ", target.gated ? target.gate_name + ", " : "", target.up_name, ", ",
                   target.down_name);
    }
    const bool down = projection == ExpertProjection::kDown;
    model_name.assign(target.module).append(".").append(pair.a->ref.rest);
    CADRE_ASSIGN(const LowRank term, plain_term(builder, pair, down ? target.intermediate : target.width,
                                                down ? target.width : target.intermediate, model_name));
    CADRE_TRY(builder.set_expert(index, projection, name.expert, term, *pair.a));
    builder.count_zero_b(*pair.b);
  }
  return {};
}

}  // namespace

const AdapterFormat kPerExpertFormat = {"per expert", claims, read};

}  // namespace cadre
