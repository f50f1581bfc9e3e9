#include <cmath>

#include "base/activation_math.h"
#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {
namespace {

// out = x / sqrt(mean(x^2) + eps) * weight[first ..]; out may be x. An undefined weight is all ones.
void normalize(float* out, const float* x, std::int64_t n, const View& weight, std::int64_t first, float eps) {
  const float mean = dot(x, DType::kF32, x, n) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + eps);
  if (!weight.defined()) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * element(weight.data, weight.dtype, first + i);
}

}  // namespace

void ReferenceOps::rms_norm(const Exec& exec, View out, View x, View weight, float eps) const {
  x = with_heads(x);
  out = with_heads(out);
  const std::int64_t tokens = x.dim(0), heads = x.dim(1), width = x.dim(2);
  CADRE_CHECK(is_activation(x, {tokens, heads, width}), "rms_norm: x is not float32 [T, D] or [T, heads, D]");
  CADRE_CHECK(is_activation(out, {tokens, heads, width}), "rms_norm: out differs from x");
  CADRE_CHECK(!weight.defined() || is_weight(weight, {width}), "rms_norm: weight is not [D] of a weight type");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens * heads, grain_for(2 * width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        normalize(row(out, i / heads, i % heads), row(x, i / heads, i % heads), width, weight, 0, eps);
      }
    });
  });
}

void ReferenceOps::layer_norm(const Exec& exec, View out, View x, View weight, View bias, float eps) const {
  const std::int64_t tokens = x.dim(0), width = x.dim(1);
  CADRE_CHECK(is_activation(x, {tokens, width}), "layer_norm: x is not float32 [T, D]");
  CADRE_CHECK(is_activation(out, {tokens, width}), "layer_norm: out differs from x");
  CADRE_CHECK(is_weight(weight, {width}), "layer_norm: weight is not [D] of a weight type");
  CADRE_CHECK(is_weight(bias, {width}), "layer_norm: bias is not [D] of a weight type");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(4 * width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float* from = row(x, t);
        float* y = row(out, t);
        float sum = 0, squares = 0;
        for (std::int64_t i = 0; i < width; ++i) sum += from[i];
        const float mean = sum / static_cast<float>(width);
        for (std::int64_t i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
        const float by = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
        for (std::int64_t i = 0; i < width; ++i) {
          y[i] = (from[i] - mean) * by * element(weight.data, weight.dtype, i) + element(bias.data, bias.dtype, i);
        }
      }
    });
  });
}

void ReferenceOps::gated_group_norm(const Exec& exec, View out, View x, View gate, View weight, int groups,
                                    float eps) const {
  const std::int64_t tokens = x.dim(0), width = x.dim(1);
  CADRE_CHECK(is_activation(x, {tokens, width}), "gated_group_norm: x is not float32 [T, D]");
  CADRE_CHECK(is_activation(gate, {tokens, width}), "gated_group_norm: gate differs from x");
  CADRE_CHECK(is_activation(out, {tokens, width}), "gated_group_norm: out differs from x");
  CADRE_CHECK(is_weight(weight, {width}), "gated_group_norm: weight is not [D] of a weight type");
  CADRE_CHECK(groups > 0 && width % groups == 0, "gated_group_norm: groups do not divide the width");
  const std::int64_t part = width / groups;

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens * groups, grain_for(16 * part), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t t = i / groups, first = i % groups * part;
        float* y = row(out, t) + first;
        const float* from = row(x, t) + first;
        const float* by = row(gate, t) + first;
        for (std::int64_t k = 0; k < part; ++k) y[k] = from[k] * silu(by[k]);
        normalize(y, y, part, weight, first, eps);
      }
    });
  });
}

}  // namespace cadre
