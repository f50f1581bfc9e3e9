#include "model/blocks/mlp.h"

#include "base/result.h"

namespace cadre {
namespace {

class Mlp final : public Mixer {
 public:
  View forward(const Step& step, View x) const override {
    const View gate = activation_.gated ? gate_.forward(step, x) : View{};
    const View up = up_.forward(step, x);
    step.ops.activate(step.exec, up, gate, up, activation_);
    return down_.forward(step, up);
  }

  Status build(Builder& b, const MlpOptions& o) {
    activation_ = o.activation;
    const LinearOptions column{.bias = o.bias, .split = Split::kColumn};
    if (o.activation.gated) CADRE_TRY(b.linear(gate_, o.module + ".gate_proj", o.hidden, o.intermediate, column));
    CADRE_TRY(b.linear(up_, o.module + ".up_proj", o.hidden, o.intermediate, column));
    return b.linear(down_, o.module + ".down_proj", o.intermediate, o.hidden, {.bias = o.bias, .split = Split::kRow});
  }

 private:
  ActivationSpec activation_;
  Linear gate_, up_, down_;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_mlp(Builder& builder, const MlpOptions& options) {
  auto mlp = std::make_unique<Mlp>();
  CADRE_TRY(mlp->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(mlp));
}

}  // namespace cadre
