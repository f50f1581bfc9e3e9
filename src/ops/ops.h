// Ops: everything a model family computes with, besides Experts. Calls enqueue on exec.stream and return.
//
// Activations are float32 [rows, width] with unit stride in the last dimension and any row stride; weights have the
// file's dtype (BF16, F16 or F32). Shapes are checked where models are built; an op's own checks are for bugs.
#pragma once

#include <cadre/moe_spec.h>

#include <memory>

#include "lora/table.h"
#include "ops/batch.h"
#include "tensor/exec.h"

namespace cadre {

// Rotary embedding of the first `dim` elements of each head, in halves (x[i], x[i + dim/2]) or in neighbours (x[2i],
// x[2i + 1]).
struct Rope {
  enum class Length : std::uint8_t {
    kFixed,     // one table for all lengths
    kDynamic,   // NTK: the base grows with the sequence length beyond original_context
    kLongShort  // LongRoPE: `inv_freq` up to original_context, `long_inv_freq` beyond
  };
  Length length = Length::kFixed;
  int dim = 0;
  bool interleaved = false;  // neighbours
  View inv_freq;             // float32 [dim / 2]
  View long_inv_freq;        // float32 [dim / 2], kLongShort only
  float scale = 1;           // of cos and sin (attention_factor)
  std::int64_t original_context = 0;
  double theta = 10000, factor = 1;  // kDynamic only
};

// Key-value pages of one layer: float32 [pages, 2, page_size, kv_heads * head_dim]; 0 is keys, 1 is values. Position p
// of a sequence lies in page blocks[p / page_size], row p % page_size.
struct AttentionSpec {
  float scale = 0;          // of the scores, 1/sqrt(head_dim) for most
  std::int64_t window = 0;  // keys seen, itself included; 0: all
  std::int64_t chunk = 0;   // Llama 4: only keys of the same chunk of positions are seen; 0: no chunks
  float softcap = 0;        // scores become softcap * tanh(score / softcap); 0: none
  View sinks;               // gpt-oss: [heads] a score each that takes weight and has no value; undefined: none
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual const char* name() const = 0;

  // out [T, H] = table[ids] (+ scale * B A[:, id] for rows with an adapter; a replacement takes the table's place).
  // `lora` may be null.
  virtual void embed(const Exec&, View out, View table, const Batch&, const LoraTable* lora) const = 0;

  // out [L, H] = x[rows].
  virtual void gather_rows(const Exec&, View out, View x, View rows) const = 0;

  // y = x W^T + bias (+ scale * B (A x)). x [T, K], weight [N, K], bias [N] or undefined, out [T, N]. slots int32 [T],
  // read only where `lora` is not null. The delta comes after the base sum, so base rows never depend on adapters.
  virtual void linear(const Exec&, View out, View x, View weight, View bias, const LoraTable* lora,
                      View slots) const = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight over the last dimension; x [T, D] or [T, heads, D]; may be in place. An
  // undefined weight is all ones.
  virtual void rms_norm(const Exec&, View out, View x, View weight, float eps) const = 0;

  // out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over the last dimension; x [T, D]; may be in place.
  virtual void layer_norm(const Exec&, View out, View x, View weight, View bias, float eps) const = 0;

  // Mamba-2's gated norm: y = x * silu(gate), RMS-normalised within each of `groups` equal parts, times weight.
  virtual void gated_group_norm(const Exec&, View out, View x, View gate, View weight, int groups, float eps) const = 0;

  // out = a + b; may be in place.
  virtual void add(const Exec&, View out, View a, View b) const = 0;

  // Gated: out = act(gate) * up. Otherwise out = act(up), gate undefined. All [T, I].
  virtual void activate(const Exec&, View out, View gate, View up, const ActivationSpec&) const = 0;

  // x [T, H] *= sigmoid(gate [T, 1]).
  virtual void scale_by_sigmoid(const Exec&, View x, View gate) const = 0;

  // x *= factor, [T, H] or [T, heads, D], in place.
  virtual void scale(const Exec&, View x, float factor) const = 0;

  // x [T, H] *= factor[0], one number of a weight's type, in place.
  virtual void scale_by(const Exec&, View x, View factor) const = 0;

  // out = a * b; may be in place.
  virtual void multiply(const Exec&, View out, View a, View b) const = 0;

  // x *= sigmoid(gate), both [T, H] or [T, heads, D]; in place.
  virtual void multiply_by_sigmoid(const Exec&, View x, View gate) const = 0;

  // x = limit * tanh(x / limit), in place. x [T, H].
  virtual void softcap(const Exec&, View x, float limit) const = 0;

  // Llama 4, where there is no rotary embedding: x [T, heads, D] *= 1 + scale * log(1 + floor((position + 1) / floor)).
  virtual void scale_by_position(const Exec&, View x, float scale, float floor, const Batch&) const = 0;

  // Clamps every element of x to [-limit, limit], in place.
  virtual void clamp(const Exec&, View x, float limit) const = 0;

  // Rotates x [T, heads, D] in place by batch.positions.
  virtual void rope(const Exec&, View x, const Rope&, const Batch&) const = 0;

  // Writes k and v [T, kv_heads, D] into the pages at batch.positions.
  virtual void write_kv(const Exec&, View pages, View k, View v, const Batch&) const = 0;

  // Causal attention of q [T, heads, D] over the pages; out [T, heads, D]. heads is a multiple of kv_heads. The order
  // of every sum depends on absolute positions only, so the bits do not depend on how a prompt was cut.
  virtual void attention(const Exec&, View out, View q, View pages, const AttentionSpec&, const Batch&) const = 0;

  // Multi-head latent attention (arXiv:2405.04434) without keys and values: each head's part of kv_b_proj, weight
  // [heads * P, R], takes queries into the latent space and results out of it. Rows [offset, offset + D) of a head's P
  // are used. Both add what adapters of the rows add to the weight, after the base sum. lora and slots as in linear.
  //   absorb_heads: out [T, heads, R] = W_h^T x (+ scale * A^T (B_h^T x)), x [T, heads, D]
  //   expand_heads: out [T, heads, D] = W_h x (+ scale * B_h (A x)), x [T, heads, R]
  virtual void absorb_heads(const Exec&, View out, View x, View weight, std::int64_t offset, const LoraTable* lora,
                            View slots) const = 0;
  virtual void expand_heads(const Exec&, View out, View x, View weight, std::int64_t offset, const LoraTable* lora,
                            View slots) const = 0;

  // Writes x [T, R + P], a token's latent vector and its rotated key, into the pages: float32 [pages, page_size, R +
  // P].
  virtual void write_latent(const Exec&, View pages, View x, const Batch&) const = 0;

  // Causal attention whose keys are the pages' rows and whose values are their first R elements, the same for all
  // heads: score = (q . latent + q_rope . rotated key) * scale. q, out [T, heads, R]; q_rope [T, heads, P]; out may be
  // q. Sums are ordered as in attention.
  virtual void latent_attention(const Exec&, View out, View q, View q_rope, View pages, float scale,
                                const Batch&) const = 0;

  // Causal depthwise convolution followed by silu. x, out [T, C]; weight [C, 1, W]; bias [C] or undefined; state
  // float32 [slots, C, W - 1]: the last inputs of each sequence, oldest first, updated.
  virtual void conv1d_silu(const Exec&, View out, View x, View weight, View bias, View state, const Batch&) const = 0;

  // The same without the activation.
  virtual void conv1d(const Exec&, View out, View x, View weight, View bias, View state, const Batch&) const = 0;

  // Mamba-2 (arXiv:2405.21060), one step for each row: dt = clamp(softplus(dt + dt_bias), dt_min, dt_max),
  // S = S * exp(dt * -exp(A_log)) + dt * x B^T, y = S C + D x. x, out [T, heads, P]; dt [T, heads]; B, C
  // [T, groups, N]; a_log, d, dt_bias [heads]; state float32 [slots, heads, P, N], updated.
  struct SsmScan {
    View x, dt, b, c;
    View a_log, d, dt_bias;
    float dt_min = 0, dt_max = 0;
  };
  virtual void ssm_scan(const Exec&, View out, const SsmScan&, View state, const Batch&) const = 0;

  // out = x, [T, H] or [T, heads, D] of any row and head strides, from memory of its own.
  virtual void copy(const Exec&, View out, View x) const = 0;

  // Gated delta rule (arXiv:2412.06464), one step for each row: q and k divided by their Euclidean length, q also by
  // sqrt(K); S *= exp(-exp(A_log) * softplus(a + dt_bias)); S += k (sigmoid(b) * (v - k^T S)); y = q^T S. q, k
  // [T, groups, K], shared by the heads of a group; v, out [T, heads, V]; a, b [T, heads]; a_log, dt_bias [heads];
  // state float32 [slots, heads, K, V], updated.
  struct DeltaRule {
    View q, k, v, a, b;
    View a_log, dt_bias;
  };
  virtual void delta_rule(const Exec&, View out, const DeltaRule&, View state, const Batch&) const = 0;
};

// Every op in float32 in a fixed order, on any CPU: the yardstick.
std::unique_ptr<Ops> make_reference_ops();

}  // namespace cadre
