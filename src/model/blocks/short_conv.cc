#include "model/blocks/short_conv.h"

#include "base/result.h"

namespace cadre {
namespace {

class ShortConv final : public Mixer {
 public:
  std::string_view kind() const override { return "short convolution"; }
  View forward(const Step& step, View x) const override {
    const View projected = in_proj_.forward(step, x);
    const View b = projected.slice(1, 0, width_), c = projected.slice(1, width_, 2 * width_);
    const View y = step.alloc({x.dim(0), width_});
    step.ops.multiply(step.exec, y, b, projected.slice(1, 2 * width_, 3 * width_));
    const View state = step.states[static_cast<std::size_t>(state_)].conv;
    step.ops.conv1d(step.exec, y, y, conv_weight_, conv_bias_, state, step.batch);
    step.ops.multiply(step.exec, y, c, y);
    return out_proj_.forward(step, y);
  }

  Status build(Builder& b, const ShortConvOptions& o) {
    CADRE_ASSIGN(width_, b.per_rank(o.hidden, "hidden_size"));
    const auto part = [&](std::int64_t offset) {
      const auto [begin, end] = b.ranks.part(o.hidden);
      return std::pair(offset + begin, offset + end);
    };
    Ranges channels;
    if (b.ranks.size > 1) channels = {part(0)};
    CADRE_TRY(
        b.linear(in_proj_, o.module + ".in_proj", o.hidden, 3 * o.hidden,
                 {.bias = o.bias, .split = Split::kColumn, .ranges = {part(0), part(o.hidden), part(2 * o.hidden)}}));
    CADRE_TRY(b.linear(out_proj_, o.module + ".out_proj", o.hidden, o.hidden, {.bias = o.bias, .split = Split::kRow}));
    CADRE_ASSIGN(conv_weight_,
                 b.loader.device_tensor(o.module + ".conv.weight", {o.hidden, 1, o.conv_width}, channels));
    if (o.bias) {
      CADRE_ASSIGN(conv_bias_, b.loader.device_tensor(o.module + ".conv.bias", {o.hidden}, channels));
    }
    CADRE_ASSIGN(state_, b.add_state({.kind = StateSpec::Kind::kRecurrent, .channels = width_, .width = o.conv_width}));
    return {};
  }

 private:
  std::int64_t width_ = 0;  // channels on this rank
  Linear in_proj_, out_proj_;
  View conv_weight_, conv_bias_;
  int state_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_short_conv(Builder& builder, const ShortConvOptions& options) {
  auto conv = std::make_unique<ShortConv>();
  CADRE_TRY(conv->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(conv));
}

}  // namespace cadre
