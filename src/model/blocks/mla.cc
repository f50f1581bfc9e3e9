#include "model/blocks/mla.h"

#include "base/result.h"

namespace cadre {
namespace {

class Mla final : public Mixer {
 public:
  std::string_view kind() const override { return "latent attention"; }
  View forward(const Step& step, View x) const override {
    const MlaOptions& o = options_;
    View q_input = x;
    if (q_a_.defined()) {
      q_input = q_a_.forward(step, x);
      q_norm_.forward(step, q_input, q_input);
    }
    const View q = q_.forward(step, q_input).split_last(heads_);
    const View q_rope = q.slice(2, o.nope_dim, o.nope_dim + o.rope_dim);
    const View latent = kv_a_.forward(step, x);  // the latent vector and the shared key
    const View vector = latent.slice(1, 0, o.kv_rank);
    kv_norm_.forward(step, vector, vector);
    step.ops.rope(step.exec, q_rope, o.rope, step.batch);
    step.ops.rope(step.exec, latent.slice(1, o.kv_rank, o.kv_rank + o.rope_dim).split_last(1), o.rope, step.batch);
    const View pages = step.states[static_cast<std::size_t>(state_)].kv;
    step.ops.write_latent(step.exec, pages, latent, step.batch);

    const LoraTable* lora = kv_b_.adapters(step);
    const View mixed = step.alloc({x.dim(0), heads_, o.kv_rank});  // queries, then what they gather
    step.ops.absorb_heads(step.exec, mixed, q.slice(2, 0, o.nope_dim), kv_b_.weight(), 0, lora, step.batch.slots);
    step.ops.latent_attention(step.exec, mixed, mixed, q_rope, pages, o.scale, step.batch);
    const View out = step.alloc({x.dim(0), heads_ * o.value_dim});
    step.ops.expand_heads(step.exec, out.split_last(heads_), mixed, kv_b_.weight(), o.nope_dim, lora, step.batch.slots);
    return o_.forward(step, out);
  }

  Status build(Builder& b, const MlaOptions& o) {
    options_ = o;
    CADRE_ASSIGN(heads_, b.per_rank(o.heads, "num_attention_heads"));
    const std::string m = o.module + ".";
    const std::int64_t q_width = o.heads * (o.nope_dim + o.rope_dim);
    const LinearOptions column{.split = Split::kColumn};
    if (o.q_rank > 0) {
      CADRE_TRY(b.linear(q_a_, m + "q_a_proj", o.hidden, o.q_rank, {.bias = o.bias}));
      CADRE_ASSIGN(q_norm_, b.norm(m + "q_a_layernorm", o.q_rank, o.norm_eps));
      CADRE_TRY(b.linear(q_, m + "q_b_proj", o.q_rank, q_width, column));
    } else {
      CADRE_TRY(b.linear(q_, m + "q_proj", o.hidden, q_width, column));
    }
    CADRE_TRY(b.linear(kv_a_, m + "kv_a_proj_with_mqa", o.hidden, o.kv_rank + o.rope_dim, {.bias = o.bias}));
    CADRE_ASSIGN(kv_norm_, b.norm(m + "kv_a_layernorm", o.kv_rank, o.norm_eps));
    CADRE_TRY(b.linear(kv_b_, m + "kv_b_proj", o.kv_rank, o.heads * (o.nope_dim + o.value_dim), column));
    CADRE_TRY(b.linear(o_, m + "o_proj", o.heads * o.value_dim, o.hidden, {.bias = o.bias, .split = Split::kRow}));
    CADRE_ASSIGN(state_, b.add_state({.kind = StateSpec::Kind::kLatentKv, .latent = o.kv_rank + o.rope_dim}));
    return {};
  }

 private:
  MlaOptions options_;
  std::int64_t heads_ = 0;  // on this rank
  Linear q_a_, q_, kv_a_, kv_b_, o_;
  Norm q_norm_, kv_norm_;
  int state_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mixer>> make_mla(Builder& builder, const MlaOptions& options) {
  auto mla = std::make_unique<Mla>();
  CADRE_TRY(mla->build(builder, options));
  return std::unique_ptr<Mixer>(std::move(mla));
}

}  // namespace cadre
