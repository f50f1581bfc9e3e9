// The scalar activation functions of include/cadre/moe_spec.h in float32: one definition for every reference path.
#pragma once

#include <cadre/moe_spec.h>

#include <algorithm>
#include <cmath>

namespace cadre {

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float silu(float x) { return x / (1.0f + std::exp(-x)); }
inline float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678f)); }
inline float gelu_tanh(float x) {
  constexpr float kSqrt2OverPi = 0.79788456f;
  return 0.5f * x * (1.0f + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
}
inline float relu2(float x) {
  const float positive = x < 0 ? 0.0f : x;  // a NaN stays one
  return positive * positive;
}
// As PyTorch: linear beyond 20, where exp would only cost.
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// act(x) alone, without clamp. kSwigluOai: x * sigmoid(alpha * x).
inline float activation(const ActivationSpec& spec, float x) {
  switch (spec.kind) {
    case Activation::kSilu:
      return silu(x);
    case Activation::kGelu:
      return gelu(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kRelu2:
      return relu2(x);
    case Activation::kSwigluOai:
      return x * sigmoid(spec.alpha * x);
  }
  return x;  // unreachable: every kind is handled
}

// Gated: act(min(gate, limit)) * clamp(up, -limit, limit), with beta added to up for kSwigluOai. Otherwise act(up),
// `gate` unused and without clamp. A NaN passes through every clamp.
inline float apply_activation(const ActivationSpec& spec, float gate, float up) {
  if (!spec.gated) return activation(spec, up);
  const float g = std::min(gate, spec.limit);
  const float u = std::clamp(up, -spec.limit, spec.limit);
  return activation(spec, g) * (spec.kind == Activation::kSwigluOai ? u + spec.beta : u);
}

}  // namespace cadre
