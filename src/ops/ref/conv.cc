#include <algorithm>
#include <vector>

#include "base/activation_math.h"
#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {
namespace {

// silu or nothing after the sum.
void convolve(const Exec& exec, View out, View x, View weight, View bias, View state, const Batch& batch,
              bool activate) {
  const std::int64_t tokens = batch.tokens, channels = x.dim(1), taps = weight.dim(2), kept = taps - 1;
  CADRE_CHECK(is_activation(x, {tokens, channels}), "conv1d: x is not float32 [T, C]");
  CADRE_CHECK(is_activation(out, {tokens, channels}), "conv1d: out differs from x");
  CADRE_CHECK(taps > 0 && is_weight(weight, {channels, 1, taps}), "conv1d: weight is not [C, 1, W]");
  CADRE_CHECK(!bias.defined() || is_weight(bias, {channels}), "conv1d: bias is not [C] of a weight type");
  CADRE_CHECK(is_activation(state, {state.dim(0), channels, kept}), "conv1d: state is not float32 [S, C, W - 1]");
  CADRE_CHECK(batch.sequences == 0 || is_index(batch.first_row, batch.sequences + 1), "conv1d: no first rows");
  CADRE_CHECK(is_index(batch.cached, batch.sequences) && is_index(batch.state_slot, batch.sequences),
              "conv1d: no state slots");

  exec.launch([=, sequences = batch.sequences, first_row = batch.first_row, cached = batch.cached,
               state_slot = batch.state_slot, threads = exec.threads] {
    // Channels of one sequence, rows outer: rows are read along their length.
    const auto run = [&](std::int64_t s, std::int64_t c_begin, std::int64_t c_end) {
      static thread_local std::vector<float> window;  // [channels, W]: the inputs that one output sees
      window.assign(static_cast<std::size_t>((c_end - c_begin) * taps), 0.0f);
      const std::int64_t slot = index_at(state_slot, s);
      CADRE_CHECK(slot >= 0 && slot < state.dim(0), "conv1d: no such state slot");
      if (index_at(cached, s) > 0) {
        for (std::int64_t c = c_begin; c < c_end; ++c) {
          std::copy_n(row(state, slot, c), kept, window.data() + (c - c_begin) * taps + 1);
        }
      }
      for (std::int64_t t = index_at(first_row, s); t < index_at(first_row, s + 1); ++t) {
        const float* in = row(x, t);
        float* y = row(out, t);
        for (std::int64_t c = c_begin; c < c_end; ++c) {
          float* seen = window.data() + (c - c_begin) * taps;
          std::copy(seen + 1, seen + taps, seen);
          seen[kept] = in[c];
          float sum = dot(weight_row(weight, c), weight.dtype, seen, taps);
          if (bias.defined()) sum += element(bias.data, bias.dtype, c);
          y[c] = activate ? silu(sum) : sum;
        }
      }
      for (std::int64_t c = c_begin; c < c_end; ++c) {
        std::copy_n(window.data() + (c - c_begin) * taps + 1, kept, row(state, slot, c));
      }
    };
    threads->parallel_for(sequences * channels, 64, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t s = begin / channels, stop = std::min(end, (s + 1) * channels);
        run(s, begin - s * channels, stop - s * channels);
        begin = stop;
      }
    });
  });
}

}  // namespace

void ReferenceOps::conv1d_silu(const Exec& exec, View out, View x, View weight, View bias, View state,
                               const Batch& batch) const {
  convolve(exec, out, x, weight, bias, state, batch, /*activate=*/true);
}

void ReferenceOps::conv1d(const Exec& exec, View out, View x, View weight, View bias, View state,
                          const Batch& batch) const {
  convolve(exec, out, x, weight, bias, state, batch, /*activate=*/false);
}

}  // namespace cadre
