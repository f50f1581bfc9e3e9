#include "model/blocks/moe_mixer.h"

#include <cmath>

#include "base/result.h"

namespace cadre {

View MoeMixer::forward(const Step& step, View x) const {
  const std::int64_t rows = x.dim(0);
  View seen = x;  // by the router
  if (router_norm_.used) {
    seen = step.alloc({rows, x.dim(1)});
    router_norm_.forward(step, seen, x);
    step.ops.scale(step.exec, seen, 1.0f / std::sqrt(static_cast<float>(x.dim(1))));
  }
  const View logits = router_.forward(step, seen);
  const View ids = step.exec.arena->alloc(DType::kI32, {rows, spec_.top_k});
  const View weights = step.alloc({rows, spec_.top_k});
  route(step.exec,
        {.ids = ids,
         .weights = weights,
         .logits = logits,
         .selection_bias = selection_bias_,
         .per_expert_scale = per_expert_scale_},
        spec_.routing);
  // Routed experts see the latent vector where there is one; the router and the shared experts see x.
  View input = spec_.latent > 0 ? latent_in_.forward(step, x) : x;
  if (experts_norm_.used) {
    const View normed = step.alloc({rows, input.dim(1)});
    experts_norm_.forward(step, normed, input);
    input = normed;
  }
  View out = step.alloc({rows, spec_.expert_width()});
  step.exec.launch([clock = clock_] { clock->start = std::chrono::steady_clock::now(); });
  experts_->run(step.exec, {.out = out,
                            .x = input,
                            .ids = ids,
                            .weights = weights,
                            .slots = step.batch.slots,
                            .any_adapter = step.batch.any_adapter});
  step.exec.launch([clock = clock_] {
    clock->time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - clock->start).count();
    ++clock->time.calls;
  });
  if (many_ranks_) step.exec.ranks->all_reduce(step.exec, out);
  if (spec_.latent > 0) out = latent_out_.forward(step, out);
  if (shared_ != nullptr) {
    const View shared = shared_->forward(step, x);
    if (shared_gate_.defined()) step.ops.scale_by_sigmoid(step.exec, shared, shared_gate_.forward(step, x));
    step.ops.add(step.exec, out, out, shared);
  }
  return out;
}

Status MoeMixer::build(Builder& b, const MoeOptions& o) {
  spec_ = o.spec;
  many_ranks_ = b.ranks.size > 1;
  if (spec_.top_k > spec_.experts) {
    return error(Code::kInvalidFile, b.config.json.where("num_experts_per_tok"), " is ", spec_.top_k,
                 ", want at most the ", spec_.experts, " experts");
  }
  const RoutingSpec& r = spec_.routing;
  if (r.groups > 1 && (spec_.experts % r.groups != 0 || r.topk_groups < 1 || r.topk_groups > r.groups ||
                       r.topk_groups * (spec_.experts / r.groups) < spec_.top_k)) {
    return error(Code::kInvalidFile, b.config.json.where("n_group"), ": ", spec_.experts, " experts in n_group ",
                 r.groups, " groups of which topk_group ", r.topk_groups, " are kept do not leave ", spec_.top_k,
                 " experts to choose from");
  }
  CADRE_TRY(b.linear(router_, o.router, spec_.hidden, spec_.experts, {.bias = spec_.router_bias}));
  if (r.selection_bias) {
    CADRE_ASSIGN(selection_bias_, b.vector(o.selection_bias, spec_.experts));
  }
  if (r.per_expert_scale) {
    CADRE_ASSIGN(per_expert_scale_, b.vector(o.per_expert_scale, spec_.experts));
  }
  if (!o.router_scale.empty()) {
    CADRE_ASSIGN(router_norm_.weight, b.vector(o.router_scale, spec_.hidden));
    router_norm_.eps = o.norm_eps;
    router_norm_.used = true;
  }
  if (!o.experts_norm.empty()) {
    CADRE_ASSIGN(experts_norm_, b.norm(o.experts_norm, spec_.expert_width(), o.norm_eps));
  }
  if (spec_.latent > 0) {
    CADRE_TRY(b.linear(latent_in_, o.latent_in, spec_.hidden, spec_.latent));
    CADRE_TRY(b.linear(latent_out_, o.latent_out, spec_.latent, spec_.hidden));
  }
  if (!b.ranks.expert_parallel) CADRE_TRY(b.per_rank(spec_.intermediate, "the experts' intermediate size").status());
  CADRE_TRY(b.moe_layer(*this, o.layer, spec_, o.experts));
  if (o.shared) {
    CADRE_ASSIGN(shared_, make_mlp(b, *o.shared));
  }
  if (!o.shared_gate.empty()) CADRE_TRY(b.linear(shared_gate_, o.shared_gate, spec_.hidden, 1));
  return {};
}

Result<std::unique_ptr<Mixer>> make_moe(Builder& builder, const MoeOptions& options) {
  auto moe = std::make_unique<MoeMixer>();
  CADRE_TRY(moe->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(moe));
}

}  // namespace cadre
