#include "model/blocks/attention.h"

#include <cmath>

#include "base/result.h"

namespace cadre {
namespace {

class Attention final : public Mixer {
 public:
  std::string_view kind() const override {
    return options_.window > 0 ? "sliding attention" : options_.chunk > 0 ? "chunked attention" : "attention";
  }
  View forward(const Step& step, View x) const override {
    const std::int64_t rows = x.dim(0);
    const AttentionOptions& o = options_;
    View q = q_.forward(step, x), k = k_.forward(step, x);
    View v = o.keys_are_values ? step.alloc({rows, k.dim(1)}) : v_.forward(step, x), gate;
    if (o.keys_are_values) step.ops.copy(step.exec, v, k);
    if (o.clip_qkv > 0) {
      for (const View& part : {q, k, v}) step.ops.clamp(step.exec, part, o.clip_qkv);
    }
    if (o.qk_norm == AttentionOptions::QkNorm::kWhole) normalise(step, q, k);
    q = q.split_last(heads_);
    if (o.output_gate) {  // a query and a gate for each head
      gate = q.slice(2, o.head_dim, 2 * o.head_dim);
      q = q.slice(2, 0, o.head_dim);
    }
    k = k.split_last(kv_heads_);
    v = v.split_last(kv_heads_);
    const bool by_head =
        o.qk_norm == AttentionOptions::QkNorm::kPerHead || o.qk_norm == AttentionOptions::QkNorm::kPerHeadPlain;
    if (by_head && !o.qk_norm_after_rope) normalise(step, q, k);
    if (o.value_norm) step.ops.rms_norm(step.exec, v, v, {}, o.norm_eps);
    if (o.rope != nullptr) {
      step.ops.rope(step.exec, q, rope_, step.batch);
      step.ops.rope(step.exec, k, rope_, step.batch);
    }
    if (by_head && o.qk_norm_after_rope) normalise(step, q, k);
    if (o.temperature_scale != 0) {
      step.ops.scale_by_position(step.exec, q, o.temperature_scale, o.temperature_floor, step.batch);
    }
    const View pages = step.states[static_cast<std::size_t>(state_)].kv;
    step.ops.write_kv(step.exec, pages, k, v, step.batch);
    const View out = step.alloc({rows, heads_ * options_.head_dim});
    const AttentionSpec spec{.scale = o.scale != 0 ? o.scale : 1.0f / std::sqrt(static_cast<float>(o.head_dim)),
                             .window = o.window,
                             .chunk = o.chunk,
                             .softcap = o.softcap,
                             .sinks = sinks_};
    step.ops.attention(step.exec, out.split_last(heads_), q, pages, spec, step.batch);
    if (o.output_gate) step.ops.multiply_by_sigmoid(step.exec, out.split_last(heads_), gate);
    return o_.forward(step, out);
  }

  Status build(Builder& b, const AttentionOptions& o) {
    options_ = o;
    if (o.rope != nullptr) rope_ = *o.rope;
    CADRE_ASSIGN(heads_, b.per_rank(o.heads, "num_attention_heads"));
    CADRE_ASSIGN(kv_heads_, b.per_rank(o.kv_heads, "num_key_value_heads"));
    CADRE_CHECK(heads_ % kv_heads_ == 0, "families check that key and value heads divide the heads");
    const LinearOptions column{.bias = o.qkv_bias, .split = Split::kColumn};
    const std::int64_t q_width = o.heads * o.head_dim * (o.output_gate ? 2 : 1);
    CADRE_TRY(b.linear(q_, o.module + ".q_proj", o.hidden, q_width, column));
    CADRE_TRY(b.linear(k_, o.module + ".k_proj", o.hidden, o.kv_heads * o.head_dim, column));
    if (!o.keys_are_values) {
      CADRE_TRY(b.linear(v_, o.module + ".v_proj", o.hidden, o.kv_heads * o.head_dim, column));
    }
    CADRE_TRY(b.linear(o_, o.module + "." + o.out, o.heads * o.head_dim, o.hidden,
                       {.bias = o.out_bias, .split = Split::kRow}));
    if (o.sinks) {
      CADRE_ASSIGN(sinks_, b.vector(o.module + ".sinks", o.heads, /*part=*/true));
    }
    if (o.qk_norm == AttentionOptions::QkNorm::kWhole && b.ranks.size > 1) {
      return error(Code::kUnsupported, o.module, ": its norm spans all heads, so it cannot be divided over ",
                   b.ranks.size, " ranks; use one rank");
    }
    if (o.qk_norm == AttentionOptions::QkNorm::kPerHead || o.qk_norm == AttentionOptions::QkNorm::kWhole) {
      const bool whole = o.qk_norm == AttentionOptions::QkNorm::kWhole;
      const Builder::NormOptions norm{.one_plus = o.qk_norm_one_plus};
      CADRE_ASSIGN(q_norm_,
                   b.norm(o.module + "." + o.q_norm, whole ? o.heads * o.head_dim : o.head_dim, o.norm_eps, norm));
      CADRE_ASSIGN(k_norm_,
                   b.norm(o.module + "." + o.k_norm, whole ? o.kv_heads * o.head_dim : o.head_dim, o.norm_eps, norm));
    }
    CADRE_ASSIGN(state_,
                 b.add_state({.kind = StateSpec::Kind::kPagedKv, .kv_heads = kv_heads_, .head_dim = o.head_dim}));
    return {};
  }

 private:
  void normalise(const Step& step, View q, View k) const {
    step.ops.rms_norm(step.exec, q, q, q_norm_.weight, options_.norm_eps);
    step.ops.rms_norm(step.exec, k, k, k_norm_.weight, options_.norm_eps);
  }

  AttentionOptions options_;
  Rope rope_;
  std::int64_t heads_ = 0, kv_heads_ = 0;  // on this rank
  Linear q_, k_, v_, o_;
  Norm q_norm_, k_norm_;
  View sinks_;
  int state_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_attention(Builder& builder, const AttentionOptions& options) {
  auto attention = std::make_unique<Attention>();
  CADRE_TRY(attention->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(attention));
}

Result<Rope> upload_rope(Builder& builder, const RopeConfig& config) {
  builder.rope_by_length |= config.rope.length != Rope::Length::kFixed;
  Rope rope = config.rope;
  const auto put = [&](const std::vector<float>& table, View& to) -> Status {
    if (table.empty()) return {};
    auto copy = std::make_shared<std::vector<float>>(table);
    CADRE_ASSIGN(auto imported, builder.loader.device().import(
                                    View(copy->data(), DType::kF32, {static_cast<std::int64_t>(copy->size())}), copy));
    to = imported.first;
    builder.loader.keep(std::move(imported.second));
    return {};
  };
  CADRE_TRY(put(config.inv_freq, rope.inv_freq));
  CADRE_TRY(put(config.long_inv_freq, rope.long_inv_freq));
  return rope;
}

}  // namespace cadre
