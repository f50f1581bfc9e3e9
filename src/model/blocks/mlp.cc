#include "model/blocks/mlp.h"

#include "base/result.h"

namespace cadre {
namespace {

class Mlp final : public Mixer {
 public:
  std::string_view kind() const override { return "dense"; }
  View forward(const Step& step, View x) const override {
    View gate, up;
    if (gate_up_.defined()) {
      const View both = gate_up_.forward(step, x);
      const std::int64_t inner = both.dim(1) / 2;
      gate = both.slice(1, 0, inner);
      up = both.slice(1, inner, 2 * inner);
    } else {
      if (activation_.gated) gate = gate_.forward(step, x);
      up = up_.forward(step, x);
    }
    step.ops.activate(step.exec, up, gate, up, activation_);
    return down_.forward(step, up);
  }

  Status build(Builder& b, const MlpOptions& o) {
    activation_ = o.activation;
    const LinearOptions column{.bias = o.bias, .split = Split::kColumn};
    if (!o.gate_up.empty()) {
      CADRE_CHECK(o.activation.gated, "one projection for gate and up needs a gate");
      LinearOptions both = column;
      if (b.ranks.size > 1) {
        CADRE_TRY(b.per_rank(o.intermediate, (o.module + "." + o.gate_up).c_str()).status());
        const auto [begin, end] = b.ranks.part(o.intermediate);
        both.ranges = {{begin, end}, {o.intermediate + begin, o.intermediate + end}};
      }
      CADRE_TRY(b.linear(gate_up_, o.module + "." + o.gate_up, o.hidden, 2 * o.intermediate, both));
    } else {
      if (o.activation.gated) CADRE_TRY(b.linear(gate_, o.module + "." + o.gate, o.hidden, o.intermediate, column));
      CADRE_TRY(b.linear(up_, o.module + "." + o.up, o.hidden, o.intermediate, column));
    }
    return b.linear(down_, o.module + "." + o.down, o.intermediate, o.hidden, {.bias = o.bias, .split = Split::kRow});
  }

 private:
  ActivationSpec activation_;
  Linear gate_, up_, gate_up_, down_;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_mlp(Builder& builder, const MlpOptions& options) {
  auto mlp = std::make_unique<Mlp>();
  CADRE_TRY(mlp->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(mlp));
}

}  // namespace cadre
