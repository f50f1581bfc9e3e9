#include <algorithm>

#include "base/activation_math.h"
#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {

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
  x = with_heads(x);
  const std::int64_t tokens = x.dim(0), heads = x.dim(1), width = x.dim(2);
  CADRE_CHECK(is_activation(x, {tokens, heads, width}), "clamp: x is not float32 [T, H] or [T, heads, D]");
  CADRE_CHECK(limit >= 0, "clamp: negative limit");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens * heads, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* y = row(x, t / heads, t % heads);
        for (std::int64_t i = 0; i < width; ++i) y[i] = std::clamp(y[i], -limit, limit);
      }
    });
  });
}

}  // namespace cadre
