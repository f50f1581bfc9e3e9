#include <algorithm>
#include <cmath>

#include "base/activation_math.h"
#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {

void ReferenceOps::ssm_scan(const Exec& exec, View out, const SsmScan& in, View state, const Batch& batch) const {
  const std::int64_t tokens = batch.tokens, heads = in.x.dim(1), width = in.x.dim(2);
  const std::int64_t groups = in.b.dim(1), size = in.b.dim(2);
  CADRE_CHECK(is_activation(in.x, {tokens, heads, width}), "ssm_scan: x is not float32 [T, heads, P]");
  CADRE_CHECK(is_activation(out, {tokens, heads, width}), "ssm_scan: out differs from x");
  CADRE_CHECK(is_activation(in.dt, {tokens, heads}), "ssm_scan: dt is not float32 [T, heads]");
  CADRE_CHECK(is_activation(in.b, {tokens, groups, size}), "ssm_scan: B is not float32 [T, groups, N]");
  CADRE_CHECK(is_activation(in.c, {tokens, groups, size}), "ssm_scan: C differs from B");
  CADRE_CHECK(groups > 0 && heads % groups == 0, "ssm_scan: groups do not divide the heads");
  CADRE_CHECK(is_weight(in.a_log, {heads}) && is_weight(in.d, {heads}) && is_weight(in.dt_bias, {heads}),
              "ssm_scan: A_log, D or dt_bias is not [heads] of a weight type");
  CADRE_CHECK(in.dt_min <= in.dt_max, "ssm_scan: dt_min is above dt_max");
  CADRE_CHECK(is_activation(state, {state.dim(0), heads, width, size}) && (width == 1 || state.step(2) == size),
              "ssm_scan: state is not float32 [slots, heads, P, N]");
  CADRE_CHECK(batch.sequences == 0 || is_index(batch.first_row, batch.sequences + 1), "ssm_scan: no first rows");
  CADRE_CHECK(is_index(batch.cached, batch.sequences) && is_index(batch.state_slot, batch.sequences),
              "ssm_scan: no state slots");

  exec.launch([=, sequences = batch.sequences, first_row = batch.first_row, cached = batch.cached,
               state_slot = batch.state_slot, threads = exec.threads] {
    const auto run = [&](std::int64_t s, std::int64_t h) {
      const std::int64_t slot = index_at(state_slot, s), group = h / (heads / groups);
      CADRE_CHECK(slot >= 0 && slot < state.dim(0), "ssm_scan: no such state slot");
      float* memory = row(state, slot, h);  // [P, N]
      if (index_at(cached, s) <= 0) std::fill_n(memory, width * size, 0.0f);
      const float a = -std::exp(element(in.a_log.data, in.a_log.dtype, h));
      const float d = element(in.d.data, in.d.dtype, h), bias = element(in.dt_bias.data, in.dt_bias.dtype, h);
      for (std::int64_t t = index_at(first_row, s); t < index_at(first_row, s + 1); ++t) {
        const float dt = std::clamp(softplus(row(in.dt, t)[h] + bias), in.dt_min, in.dt_max);
        const float decay = std::exp(dt * a);
        const float *x = row(in.x, t, h), *b = row(in.b, t, group), *c = row(in.c, t, group);
        float* y = row(out, t, h);
        for (std::int64_t p = 0; p < width; ++p) {
          float* cells = memory + p * size;
          const float input = dt * x[p];
          for (std::int64_t n = 0; n < size; ++n) cells[n] = cells[n] * decay + input * b[n];
          y[p] = dot(cells, DType::kF32, c, size) + d * x[p];
        }
      }
    };
    threads->parallel_for(sequences * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) run(i / heads, i % heads);
    });
  });
}

}  // namespace cadre
