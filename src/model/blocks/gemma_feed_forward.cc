#include "model/blocks/gemma_feed_forward.h"

#include "base/result.h"

namespace cadre {
namespace {

class GemmaFeedForward final : public Mixer {
 public:
  std::string_view kind() const override { return moe_ == nullptr ? "dense" : "dense beside experts"; }
  View forward(const Step& step, View x) const override {
    const View normed = step.alloc({x.dim(0), x.dim(1)});
    before_.forward(step, normed, x);
    const View out = dense_->forward(step, normed);
    if (moe_ == nullptr) return out;
    after_dense_.forward(step, out, out);
    const View routed = moe_->forward(step, x);
    after_moe_.forward(step, routed, routed);
    step.ops.add(step.exec, out, out, routed);
    return out;
  }

  Status build(Builder& b, const GemmaFeedForwardOptions& o) {
    const std::int64_t hidden = o.dense.hidden;
    CADRE_ASSIGN(before_, b.norm(o.prefix + ".pre_feedforward_layernorm", hidden, o.norm_eps));
    CADRE_ASSIGN(dense_, make_mlp(b, o.dense));
    if (!o.moe) return {};
    CADRE_ASSIGN(after_dense_, b.norm(o.prefix + ".post_feedforward_layernorm_1", hidden, o.norm_eps));
    CADRE_ASSIGN(after_moe_, b.norm(o.prefix + ".post_feedforward_layernorm_2", hidden, o.norm_eps));
    CADRE_ASSIGN(moe_, make_moe(b, *o.moe));
    return {};
  }

 private:
  Norm before_, after_dense_, after_moe_;
  std::unique_ptr<Mixer> dense_, moe_;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_gemma_feed_forward(Builder& builder, const GemmaFeedForwardOptions& options) {
  auto layer = std::make_unique<GemmaFeedForward>();
  CADRE_TRY(layer->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(layer));
}

}  // namespace cadre
