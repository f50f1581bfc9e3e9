#include "model/blocks/delta_net.h"

#include "base/result.h"

namespace cadre {
namespace {

class DeltaNet final : public Mixer {
 public:
  std::string_view kind() const override { return "gated delta net"; }
  View forward(const Step& step, View x) const override {
    const std::int64_t rows = x.dim(0), key = key_heads_ * o_.key_dim, value = value_heads_ * o_.value_dim;
    const Parts in = o_.grouped_projections ? project_grouped(step, x) : project(step, x);
    const LayerState& state = step.states[static_cast<std::size_t>(state_)];
    step.ops.conv1d_silu(step.exec, in.qkv, in.qkv, conv_weight_, {}, state.conv, step.batch);
    const View y = step.alloc({rows, value});
    step.ops.delta_rule(step.exec, y.split_last(value_heads_),
                        {.q = in.qkv.slice(1, 0, key).split_last(key_heads_),
                         .k = in.qkv.slice(1, key, 2 * key).split_last(key_heads_),
                         .v = in.qkv.slice(1, 2 * key, 2 * key + value).split_last(value_heads_),
                         .a = in.a,
                         .b = in.b,
                         .a_log = a_log_,
                         .dt_bias = dt_bias_},
                        state.ssm, step.batch);
    step.ops.rms_norm(step.exec, y.split_last(value_heads_), y.split_last(value_heads_), norm_, o_.norm_eps);
    step.ops.activate(step.exec, y, in.gate, y, {.kind = Activation::kSilu, .gated = true});
    return out_proj_.forward(step, y);
  }

  Status build(Builder& b, const DeltaNetOptions& o) {
    o_ = o;
    CADRE_CHECK(o.value_heads % o.key_heads == 0, "families check that key heads divide the value heads");
    const std::int64_t key = o.key_heads * o.key_dim, value = o.value_heads * o.value_dim;
    CADRE_ASSIGN(key_heads_, b.per_rank(o.key_heads, "linear_num_key_heads"));
    value_heads_ = key_heads_ * (o.value_heads / o.key_heads);
    const LinearOptions column{.split = Split::kColumn};
    // This rank's heads inside queries, keys and values, which lie one after another.
    Ranges channels;
    if (b.ranks.size > 1) {
      for (const auto& [offset, n] : {std::pair(std::int64_t{0}, key), {key, key}, {2 * key, value}}) {
        const auto [begin, end] = b.ranks.part(n);
        channels.emplace_back(offset + begin, offset + end);
      }
    }
    if (o.grouped_projections) {  // a rank's key heads are one piece of either
      CADRE_TRY(b.linear(in_proj_, o.module + ".in_proj_qkvz", o.hidden, 2 * key + 2 * value, column));
      CADRE_TRY(b.linear(in_proj_ba_, o.module + ".in_proj_ba", o.hidden, 2 * o.value_heads, column));
    } else {
      CADRE_TRY(b.linear(in_proj_, o.module + ".in_proj_qkv", o.hidden, 2 * key + value,
                         {.split = Split::kColumn, .ranges = channels}));
      CADRE_TRY(b.linear(in_proj_z_, o.module + ".in_proj_z", o.hidden, value, column));
      CADRE_TRY(b.linear(in_proj_b_, o.module + ".in_proj_b", o.hidden, o.value_heads, column));
      CADRE_TRY(b.linear(in_proj_a_, o.module + ".in_proj_a", o.hidden, o.value_heads, column));
    }
    CADRE_TRY(b.linear(out_proj_, o.module + ".out_proj", value, o.hidden, {.split = Split::kRow}));
    CADRE_ASSIGN(conv_weight_,
                 b.loader.device_tensor(o.module + ".conv1d.weight", {2 * key + value, 1, o.conv_width}, channels));
    CADRE_ASSIGN(a_log_, b.vector(o.module + ".A_log", o.value_heads, /*part=*/true));
    CADRE_ASSIGN(dt_bias_, b.vector(o.module + ".dt_bias", o.value_heads, /*part=*/true));
    CADRE_ASSIGN(norm_, b.vector(o.module + ".norm.weight", o.value_dim));
    CADRE_ASSIGN(state_, b.add_state({.kind = StateSpec::Kind::kRecurrent,
                                      .channels = 2 * key_heads_ * o.key_dim + value_heads_ * o.value_dim,
                                      .width = o.conv_width,
                                      .heads = value_heads_,
                                      .ssm_head_dim = o.key_dim,
                                      .state = o.value_dim}));
    return {};
  }

 private:
  struct Parts {
    View qkv, gate, a, b;  // [T, queries of all heads, keys, values], [T, value_heads * value_dim], [T, value_heads]
  };

  Parts project(const Step& step, View x) const {
    return {.qkv = in_proj_.forward(step, x),
            .gate = in_proj_z_.forward(step, x),
            .a = in_proj_a_.forward(step, x),
            .b = in_proj_b_.forward(step, x)};
  }

  Parts project_grouped(const Step& step, View x) const {
    const std::int64_t rows = x.dim(0), key = key_heads_ * o_.key_dim, value = value_heads_ * o_.value_dim;
    const std::int64_t shared = value_heads_ / key_heads_, values = shared * o_.value_dim;
    const Parts out{.qkv = step.alloc({rows, 2 * key + value}),
                    .gate = step.alloc({rows, value}),
                    .a = step.alloc({rows, value_heads_}),
                    .b = step.alloc({rows, value_heads_})};
    const View groups = in_proj_.forward(step, x).split_last(key_heads_);
    const View ba = in_proj_ba_.forward(step, x).split_last(key_heads_);
    const auto move = [&](View to, const View& from, std::int64_t begin, std::int64_t end) {
      step.ops.copy(step.exec, to.split_last(key_heads_), from.slice(2, begin, end));
    };
    const std::int64_t k = o_.key_dim;
    move(out.qkv.slice(1, 0, key), groups, 0, k);
    move(out.qkv.slice(1, key, 2 * key), groups, k, 2 * k);
    move(out.qkv.slice(1, 2 * key, 2 * key + value), groups, 2 * k, 2 * k + values);
    move(out.gate, groups, 2 * k + values, 2 * k + 2 * values);
    move(out.b, ba, 0, shared);
    move(out.a, ba, shared, 2 * shared);
    return out;
  }

  DeltaNetOptions o_;
  std::int64_t key_heads_ = 0, value_heads_ = 0;  // on this rank
  Linear in_proj_, in_proj_ba_, in_proj_z_, in_proj_b_, in_proj_a_, out_proj_;
  View conv_weight_, a_log_, dt_bias_, norm_;
  int state_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_delta_net(Builder& builder, const DeltaNetOptions& options) {
  auto net = std::make_unique<DeltaNet>();
  CADRE_TRY(net->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(net));
}

}  // namespace cadre
