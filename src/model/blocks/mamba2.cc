#include "model/blocks/mamba2.h"

#include "base/result.h"

namespace cadre {
namespace {

class Mamba2 final : public Mixer {
 public:
  std::string_view kind() const override { return "Mamba-2"; }
  View forward(const Step& step, View x) const override {
    const std::int64_t rows = x.dim(0), inner = heads_ * o_.head_dim, bc = groups_ * o_.state;
    const View projected = in_proj_.forward(step, x);
    const View gate = projected.slice(1, 0, inner);
    const View conv_in = projected.slice(1, inner, 2 * inner + 2 * bc);
    const View dt = projected.slice(1, 2 * inner + 2 * bc, 2 * inner + 2 * bc + heads_);
    const LayerState& state = step.states[static_cast<std::size_t>(state_)];
    const View mixed = step.alloc({rows, inner + 2 * bc});
    step.ops.conv1d_silu(step.exec, mixed, conv_in, conv_weight_, conv_bias_, state.conv, step.batch);
    const View y = step.alloc({rows, inner});
    step.ops.ssm_scan(step.exec, y.split_last(heads_),
                      {.x = mixed.slice(1, 0, inner).split_last(heads_),
                       .dt = dt,
                       .b = mixed.slice(1, inner, inner + bc).split_last(groups_),
                       .c = mixed.slice(1, inner + bc, inner + 2 * bc).split_last(groups_),
                       .a_log = a_log_,
                       .d = d_,
                       .dt_bias = dt_bias_,
                       .dt_min = o_.dt_min,
                       .dt_max = o_.dt_max},
                      state.ssm, step.batch);
    step.ops.gated_group_norm(step.exec, y, y, gate, norm_, norm_groups_, o_.norm_eps);
    return out_proj_.forward(step, y);
  }

  Status build(Builder& b, const Mamba2Options& o) {
    o_ = o;
    const std::int64_t inner = o.heads * o.head_dim, bc = o.groups * o.state, conv = inner + 2 * bc;
    if (o.heads % o.groups != 0) {
      return error(Code::kInvalidFile, b.config.json.where("mamba_num_heads"), " is ", o.heads,
                   ", want a multiple of n_groups ", o.groups);
    }
    // A norm over several groups needs all of their heads.
    const bool divided = b.ranks.size > 1 && (o.norm_groups == 0 || o.norm_groups == o.groups);
    heads_ = o.heads;
    groups_ = o.groups;
    if (divided) {
      CADRE_ASSIGN(heads_, b.per_rank(o.heads, "mamba_num_heads"));
      CADRE_ASSIGN(groups_, b.per_rank(o.groups, "n_groups"));
    }
    norm_groups_ = static_cast<int>(o.norm_groups == 0 || divided ? groups_ : o.norm_groups);
    // This rank's heads and groups inside the parts that in_proj and the convolution pack together.
    const auto part = [&](std::int64_t offset, std::int64_t n) {
      const auto [begin, end] = b.ranks.part(n);
      return std::pair(offset + begin, offset + end);
    };
    const Ranges projected = {part(0, inner), part(inner, inner), part(2 * inner, bc), part(2 * inner + bc, bc),
                              part(2 * inner + 2 * bc, o.heads)};
    Ranges channels;
    if (divided) channels = {part(0, inner), part(inner, bc), part(inner + bc, bc)};
    CADRE_TRY(b.linear(in_proj_, o.module + ".in_proj", o.hidden, inner + conv + o.heads,
                       {.bias = o.proj_bias, .split = divided ? Split::kColumn : Split::kNone, .ranges = projected}));
    CADRE_TRY(b.linear(out_proj_, o.module + ".out_proj", inner, o.hidden,
                       {.bias = o.proj_bias, .split = divided ? Split::kRow : Split::kNone}));
    CADRE_ASSIGN(conv_weight_, b.loader.device_tensor(o.module + ".conv1d.weight", {conv, 1, o.conv_width}, channels));
    if (o.conv_bias) {
      CADRE_ASSIGN(conv_bias_, b.loader.device_tensor(o.module + ".conv1d.bias", {conv}, channels));
    }
    CADRE_ASSIGN(a_log_, b.vector(o.module + ".A_log", o.heads, divided));
    CADRE_ASSIGN(d_, b.vector(o.module + ".D", o.heads, divided));
    CADRE_ASSIGN(dt_bias_, b.vector(o.module + ".dt_bias", o.heads, divided));
    CADRE_ASSIGN(norm_, b.vector(o.module + ".norm.weight", inner, divided));
    CADRE_ASSIGN(state_, b.add_state({.kind = StateSpec::Kind::kRecurrent,
                                      .channels = heads_ * o.head_dim + 2 * groups_ * o.state,
                                      .width = o.conv_width,
                                      .heads = heads_,
                                      .ssm_head_dim = o.head_dim,
                                      .state = o.state}));
    return {};
  }

 private:
  Mamba2Options o_;
  std::int64_t heads_ = 0, groups_ = 0;  // on this rank
  int norm_groups_ = 1;
  Linear in_proj_, out_proj_;
  View conv_weight_, conv_bias_, a_log_, d_, dt_bias_, norm_;
  int state_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_mamba2(Builder& builder, const Mamba2Options& options) {
  auto mamba = std::make_unique<Mamba2>();
  CADRE_TRY(mamba->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(mamba));
}

}  // namespace cadre
