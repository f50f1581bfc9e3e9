#include <algorithm>
#include <cmath>
#include <vector>

#include "base/activation_math.h"
#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {
namespace {

constexpr float kLengthEps = 1e-6f;  // of the squared length

// out = x / |x| * scale.
void unit_vector(float* out, const float* x, std::int64_t n, float scale) {
  const float by = scale / std::sqrt(dot(x, DType::kF32, x, n) + kLengthEps);
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * by;
}

}  // namespace

void ReferenceOps::delta_rule(const Exec& exec, View out, const DeltaRule& in, View state, const Batch& batch) const {
  const std::int64_t tokens = batch.tokens, heads = in.v.dim(1), width = in.v.dim(2);
  const std::int64_t groups = in.k.dim(1), keys = in.k.dim(2);
  CADRE_CHECK(is_activation(in.v, {tokens, heads, width}), "delta_rule: v is not float32 [T, heads, V]");
  CADRE_CHECK(is_activation(out, {tokens, heads, width}), "delta_rule: out differs from v");
  CADRE_CHECK(is_activation(in.k, {tokens, groups, keys}), "delta_rule: k is not float32 [T, groups, K]");
  CADRE_CHECK(is_activation(in.q, {tokens, groups, keys}), "delta_rule: q differs from k");
  CADRE_CHECK(groups > 0 && heads % groups == 0, "delta_rule: groups do not divide the heads");
  CADRE_CHECK(is_activation(in.a, {tokens, heads}), "delta_rule: a is not float32 [T, heads]");
  CADRE_CHECK(is_activation(in.b, {tokens, heads}), "delta_rule: b differs from a");
  CADRE_CHECK(is_weight(in.a_log, {heads}) && is_weight(in.dt_bias, {heads}),
              "delta_rule: A_log or dt_bias is not [heads] of a weight type");
  CADRE_CHECK(is_activation(state, {state.dim(0), heads, keys, width}) && (keys == 1 || state.step(2) == width),
              "delta_rule: state is not float32 [slots, heads, K, V]");
  CADRE_CHECK(batch.sequences == 0 || is_index(batch.first_row, batch.sequences + 1), "delta_rule: no first rows");
  CADRE_CHECK(is_index(batch.cached, batch.sequences) && is_index(batch.state_slot, batch.sequences),
              "delta_rule: no state slots");

  exec.launch([=, sequences = batch.sequences, first_row = batch.first_row, cached = batch.cached,
               state_slot = batch.state_slot, threads = exec.threads] {
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(keys));
    const auto run = [&](std::int64_t s, std::int64_t h) {
      static thread_local std::vector<float> scratch;
      scratch.resize(static_cast<std::size_t>(2 * keys + width));
      float *q = scratch.data(), *k = q + keys, *change = k + keys;
      const std::int64_t slot = index_at(state_slot, s), group = h / (heads / groups);
      CADRE_CHECK(slot >= 0 && slot < state.dim(0), "delta_rule: no such state slot");
      float* memory = row(state, slot, h);  // [K, V]
      if (index_at(cached, s) <= 0) std::fill_n(memory, keys * width, 0.0f);
      const float rate = -std::exp(element(in.a_log.data, in.a_log.dtype, h));
      const float bias = element(in.dt_bias.data, in.dt_bias.dtype, h);
      // Sums over K run along the rows of the state, so every value dimension is a lane of its own and the order of its
      // sum is the same however wide the processor's vectors are.
      for (std::int64_t t = index_at(first_row, s); t < index_at(first_row, s + 1); ++t) {
        const float decay = std::exp(rate * softplus(row(in.a, t)[h] + bias)), beta = sigmoid(row(in.b, t)[h]);
        const float* v = row(in.v, t, h);
        float* y = row(out, t, h);
        unit_vector(q, row(in.q, t, group), keys, query_scale);
        unit_vector(k, row(in.k, t, group), keys, 1.0f);
        std::fill_n(change, width, 0.0f);  // first what the state remembers for this key
        for (std::int64_t i = 0; i < keys; ++i) {
          float* cells = memory + i * width;
          for (std::int64_t j = 0; j < width; ++j) cells[j] *= decay;
          axpy(k[i], cells, DType::kF32, change, width);
        }
        for (std::int64_t j = 0; j < width; ++j) change[j] = (v[j] - change[j]) * beta;
        std::fill_n(y, width, 0.0f);  // after v is read: out may be v
        for (std::int64_t i = 0; i < keys; ++i) {
          float* cells = memory + i * width;
          axpy(k[i], change, DType::kF32, cells, width);
          axpy(q[i], cells, DType::kF32, y, width);
        }
      }
    };
    threads->parallel_for(sequences * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run(i / heads, i % heads);
    });
  });
}

}  // namespace cadre
