#include <algorithm>
#include <cmath>

#include "base/activation_math.h"
#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {
namespace {

// Calls change(x, t, h, i) for every element of x [T, H] or [T, heads, D].
template <class Change>
void each(const Exec& exec, View x, const char* what, Change change) {
  x = with_heads(x);
  const std::int64_t tokens = x.dim(0), heads = x.dim(1), width = x.dim(2);
  CADRE_CHECK(is_activation(x, {tokens, heads, width}), what);
  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens * heads, grain_for(4 * width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t t = item / heads, h = item % heads;
        float* y = row(x, t, h);
        for (std::int64_t i = 0; i < width; ++i) change(y[i], t, h, i);
      }
    });
  });
}

}  // namespace

void ReferenceOps::scale(const Exec& exec, View x, float factor) const {
  each(exec, x, "scale: x is not float32 [T, H] or [T, heads, D]",
       [factor](float& y, std::int64_t, std::int64_t, std::int64_t) { y *= factor; });
}

void ReferenceOps::scale_by(const Exec& exec, View x, View factor) const {
  CADRE_CHECK(is_weight(factor, {1}), "scale_by: factor is not one number of a weight type");
  each(exec, x, "scale_by: x is not float32 [T, H]",
       [factor](float& y, std::int64_t, std::int64_t, std::int64_t) { y *= element(factor.data, factor.dtype, 0); });
}

void ReferenceOps::multiply(const Exec& exec, View out, View a, View b) const {
  const std::int64_t tokens = out.dim(0), width = out.dim(1);
  CADRE_CHECK(is_activation(a, {tokens, width}) && is_activation(b, {tokens, width}),
              "multiply: a or b is not float32 [T, H]");
  each(exec, out, "multiply: out is not float32 [T, H]",
       [a, b](float& y, std::int64_t t, std::int64_t, std::int64_t i) { y = row(a, t)[i] * row(b, t)[i]; });
}

void ReferenceOps::multiply_by_sigmoid(const Exec& exec, View x, View gate) const {
  const View x3 = with_heads(x), gate3 = with_heads(gate);
  CADRE_CHECK(is_activation(gate3, {x3.dim(0), x3.dim(1), x3.dim(2)}), "multiply_by_sigmoid: gate differs from x");
  each(exec, x, "multiply_by_sigmoid: x is not float32 [T, H] or [T, heads, D]",
       [gate3](float& y, std::int64_t t, std::int64_t h, std::int64_t i) { y *= sigmoid(row(gate3, t, h)[i]); });
}

void ReferenceOps::softcap(const Exec& exec, View x, float limit) const {
  CADRE_CHECK(limit > 0, "softcap: no limit");
  each(exec, x, "softcap: x is not float32 [T, H]",
       [limit](float& y, std::int64_t, std::int64_t, std::int64_t) { y = limit * std::tanh(y / limit); });
}

void ReferenceOps::scale_by_position(const Exec& exec, View x, float scale, float floor, const Batch& batch) const {
  CADRE_CHECK(is_index(batch.positions, x.dim(0)), "scale_by_position: positions are not int32 [T]");
  each(exec, x, "scale_by_position: x is not float32 [T, heads, D]",
       [scale, floor, positions = batch.positions](float& y, std::int64_t t, std::int64_t, std::int64_t) {
         const float steps = std::floor((static_cast<float>(index_at(positions, t)) + 1.0f) / floor);
         y *= 1.0f + scale * std::log1p(steps);
       });
}

void ReferenceOps::add(const Exec& exec, View out, View a, View b) const {
  const std::int64_t tokens = a.dim(0), width = a.dim(1);
  CADRE_CHECK(is_activation(a, {tokens, width}), "add: a is not float32 [T, H]");
  CADRE_CHECK(is_activation(b, {tokens, width}), "add: b differs from a");
  CADRE_CHECK(is_activation(out, {tokens, width}), "add: out differs from a");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float *from = row(a, t), *other = row(b, t);
        float* y = row(out, t);
        for (std::int64_t i = 0; i < width; ++i) y[i] = from[i] + other[i];
      }
    });
  });
}

void ReferenceOps::activate(const Exec& exec, View out, View gate, View up, const ActivationSpec& spec) const {
  const std::int64_t tokens = up.dim(0), width = up.dim(1);
  CADRE_CHECK(is_activation(up, {tokens, width}), "activate: up is not float32 [T, I]");
  CADRE_CHECK(is_activation(out, {tokens, width}), "activate: out differs from up");
  CADRE_CHECK(spec.gated == gate.defined(), "activate: gate and spec disagree");
  CADRE_CHECK(!spec.gated || is_activation(gate, {tokens, width}), "activate: gate differs from up");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(16 * width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float* u = row(up, t);
        const float* g = spec.gated ? row(gate, t) : u;
        float* y = row(out, t);
        for (std::int64_t i = 0; i < width; ++i) y[i] = apply_activation(spec, g[i], u[i]);
      }
    });
  });
}

void ReferenceOps::scale_by_sigmoid(const Exec& exec, View x, View gate) const {
  const std::int64_t tokens = x.dim(0), width = x.dim(1);
  CADRE_CHECK(is_activation(x, {tokens, width}), "scale_by_sigmoid: x is not float32 [T, H]");
  CADRE_CHECK(is_activation(gate, {tokens, 1}), "scale_by_sigmoid: gate is not float32 [T, 1]");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const float by = sigmoid(*row(gate, t));
        float* y = row(x, t);
        for (std::int64_t i = 0; i < width; ++i) y[i] *= by;
      }
    });
  });
}

void ReferenceOps::clamp(const Exec& exec, View x, float limit) const {
  CADRE_CHECK(limit >= 0, "clamp: negative limit");
  each(exec, x, "clamp: x is not float32 [T, H] or [T, heads, D]",
       [limit](float& y, std::int64_t, std::int64_t, std::int64_t) { y = std::clamp(y, -limit, limit); });
}

}  // namespace cadre
