#include "moe/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/dot.h"

namespace cadre {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

void softmax(const float* z, int n, float* p) {
  const float top = *std::max_element(z, z + n);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += p[i] = std::exp(z[i] - top);
  for (int i = 0; i < n; ++i) p[i] /= sum;
}

// The k largest, descending, ties to the lower index. Entries of minus infinity are taken last, lowest index first, so
// k ids always come out.
void top_k(const float* score, int n, int k, std::int32_t* ids) {
  for (int j = 0; j < k; ++j) {
    int best = -1;
    for (int i = 0; i < n; ++i) {
      if (std::find(ids, ids + j, i) != ids + j) continue;
      if (best < 0 || score[i] > score[best]) best = i;
    }
    ids[j] = best;
  }
}

// Keeps the best `keep` of `groups` equal groups; the others' scores become minus infinity. A group's score is the sum
// of its two best with a selection bias (DeepSeek-V3), its best without (DeepSeek-V2).
void mask_groups(float* choice, int n, int groups, int keep, bool sum_of_two) {
  const int width = n / groups;
  std::vector<float> score(static_cast<std::size_t>(groups));
  for (int g = 0; g < groups; ++g) {
    float first = kNone, second = kNone;
    for (int i = g * width; i < (g + 1) * width; ++i) {
      if (choice[i] > first) {
        second = first;
        first = choice[i];
      } else {
        second = std::max(second, choice[i]);
      }
    }
    score[static_cast<std::size_t>(g)] = sum_of_two && width > 1 ? first + second : first;
  }
  std::vector<std::int32_t> kept(static_cast<std::size_t>(keep));
  top_k(score.data(), groups, keep, kept.data());
  for (int g = 0; g < groups; ++g) {
    if (std::find(kept.begin(), kept.end(), g) == kept.end()) std::fill_n(choice + g * width, width, kNone);
  }
}

// Phi-3.5's two passes (arXiv:2404.14219, inference form): the best expert is weighed by a softmax over the logits
// within a relative gap of 2 * jitter of it; then the same among the others.
void sparse_mixer(const float* z, int n, int k, std::int32_t* ids, float* weights, float* scratch) {
  constexpr float kJitter = 0.01f;
  std::copy_n(z, n, scratch);
  for (int j = 0; j < k; ++j) {
    const int best = static_cast<int>(std::max_element(scratch, scratch + n) - scratch);
    const float top = scratch[best];
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      if (scratch[i] == kNone) continue;
      // The gap is measured on the original logits, also of the expert taken before, which is masked already.
      const float factor = std::max(std::fabs(z[i]), std::fabs(top));
      if ((top - z[i]) / factor > 2 * kJitter) continue;
      sum += std::exp(scratch[i] - top);
    }
    ids[j] = best;
    weights[j] = 1.0f / sum;
    scratch[best] = kNone;
  }
}

}  // namespace

void route_row(const RoutingSpec& spec, const float* z, const float* bias, const float* expert_scale, int experts,
               int k, std::int32_t* ids, float* weights, float* scratch) {
  float* score = scratch;
  float* choice = scratch + experts;
  switch (spec.kind) {
    case Routing::kSoftmaxTopK:
      softmax(z, experts, score);
      break;
    case Routing::kSigmoidTopK:
    case Routing::kSigmoidInput:
      for (int i = 0; i < experts; ++i) score[i] = 1.0f / (1.0f + std::exp(-z[i]));
      break;
    case Routing::kTopKSoftmax:
      std::copy_n(z, experts, score);
      break;
    case Routing::kSparseMixer:
      sparse_mixer(z, experts, k, ids, weights, scratch);
      break;
  }
  if (spec.kind != Routing::kSparseMixer) {
    // Llama 4 selects on logits; sigmoid is monotonic but saturates, so ties could differ.
    std::copy_n(spec.kind == Routing::kSigmoidInput ? z : score, experts, choice);
    if (bias != nullptr) {
      for (int i = 0; i < experts; ++i) choice[i] += bias[i];
    }
    if (spec.groups > 1) mask_groups(choice, experts, spec.groups, spec.topk_groups, spec.selection_bias);
    top_k(choice, experts, k, ids);
    for (int j = 0; j < k; ++j) weights[j] = score[ids[j]];
    if (spec.kind == Routing::kTopKSoftmax) softmax(weights, k, weights);
    if (spec.renormalize) {
      float sum = spec.sum_epsilon;
      for (int j = 0; j < k; ++j) sum += weights[j];
      // All weights can underflow to zero only in sigmoid routing; the published code guards with this epsilon.
      if (spec.kind == Routing::kSigmoidTopK) sum += 1e-20f;
      for (int j = 0; j < k; ++j) weights[j] /= sum;
    }
  }
  for (int j = 0; j < k; ++j) {
    weights[j] *= spec.scale;
    if (expert_scale != nullptr) weights[j] *= expert_scale[ids[j]];
  }
}

void route(const Exec& exec, const RouteArgs& args, const RoutingSpec& spec) {
  exec.launch([args, spec, threads = exec.threads] {
    const int experts = static_cast<int>(args.logits.dim(1));
    const int k = static_cast<int>(args.ids.dim(1));
    const auto floats = [&](const View& v) {
      std::vector<float> out;
      for (std::int64_t i = 0; v.defined() && i < v.dim(0); ++i) out.push_back(element(v.data, v.dtype, i));
      return out;
    };
    const std::vector<float> bias = floats(args.selection_bias), scale = floats(args.per_expert_scale);
    threads->parallel_for(args.logits.dim(0), 16, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(static_cast<std::size_t>(2 * experts));
      for (std::int64_t t = begin; t < end; ++t) {
        route_row(spec, ptr<float>(args.logits) + t * args.logits.step(0), bias.empty() ? nullptr : bias.data(),
                  scale.empty() ? nullptr : scale.data(), experts, k, ptr<std::int32_t>(args.ids) + t * k,
                  ptr<float>(args.weights) + t * k, scratch.data());
      }
    });
  });
}

}  // namespace cadre
