#include <cmath>
#include <vector>

#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {
namespace {

// Inverse frequencies of one sequence of total length `length`.
void frequencies(const Rope& rope, std::int64_t length, std::vector<float>& out) {
  const std::int64_t half = rope.dim / 2;
  const bool beyond = length > rope.original_context;
  if (rope.length == Rope::Length::kDynamic && beyond) {
    const double ratio = static_cast<double>(length) / static_cast<double>(rope.original_context);
    const double base = rope.theta * std::pow(rope.factor * ratio - (rope.factor - 1),
                                              static_cast<double>(rope.dim) / static_cast<double>(rope.dim - 2));
    for (std::int64_t i = 0; i < half; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.dim);
      out[static_cast<std::size_t>(i)] = 1.0f / std::pow(static_cast<float>(base), exponent);
    }
    return;
  }
  const View& table = rope.length == Rope::Length::kLongShort && beyond ? rope.long_inv_freq : rope.inv_freq;
  std::copy_n(ptr<const float>(table), half, out.begin());
}

}  // namespace

void ReferenceOps::rope(const Exec& exec, View x, const Rope& rope, const Batch& batch) const {
  const std::int64_t tokens = batch.tokens, heads = x.dim(1), half = rope.dim / 2;
  const bool by_length = rope.length != Rope::Length::kFixed;
  CADRE_CHECK(is_activation(x, {tokens, heads, x.dim(2)}), "rope: x is not float32 [T, heads, D]");
  CADRE_CHECK(rope.dim > 0 && rope.dim % 2 == 0 && rope.dim <= x.dim(2), "rope: dim is odd or above the head's");
  CADRE_CHECK(is_activation(rope.inv_freq, {half}), "rope: inv_freq is not float32 [dim / 2]");
  CADRE_CHECK(rope.length != Rope::Length::kLongShort || is_activation(rope.long_inv_freq, {half}),
              "rope: long_inv_freq is not float32 [dim / 2]");
  CADRE_CHECK(rope.length != Rope::Length::kDynamic || rope.dim > 2, "rope: dynamic scaling needs a dim above 2");
  CADRE_CHECK(!by_length || rope.original_context > 0, "rope: no original context");
  CADRE_CHECK(is_index(batch.positions, tokens), "rope: positions are not int32 [T]");
  CADRE_CHECK(!by_length || (is_index(batch.sequence, tokens) && is_index(batch.rope_length, batch.sequences)),
              "rope: no length for each sequence");

  exec.launch([=, positions = batch.positions, sequence = batch.sequence, lengths = batch.rope_length,
               threads = exec.threads] {
    threads->parallel_for(tokens, grain_for(heads * rope.dim + 32 * half), [&](std::int64_t begin, std::int64_t end) {
      static thread_local std::vector<float> inv_freq, cosines, sines;
      for (auto* table : {&inv_freq, &cosines, &sines}) table->resize(static_cast<std::size_t>(half));
      std::int64_t current = -1;
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t s = by_length ? index_at(sequence, t) : 0;
        if (s != current) frequencies(rope, by_length ? index_at(lengths, s) : 0, inv_freq);
        current = s;
        const float position = static_cast<float>(index_at(positions, t));
        for (std::size_t i = 0; i < static_cast<std::size_t>(half); ++i) {
          const float angle = position * inv_freq[i];
          cosines[i] = std::cos(angle) * rope.scale;
          sines[i] = std::sin(angle) * rope.scale;
        }
        // The partner of an element, and how far the next pair is.
        const std::int64_t other = rope.interleaved ? 1 : half, step = rope.interleaved ? 2 : 1;
        for (std::int64_t h = 0; h < heads; ++h) {
          float* y = row(x, t, h);
          for (std::int64_t i = 0; i < half; ++i, y += step) {
            const float c = cosines[static_cast<std::size_t>(i)], sn = sines[static_cast<std::size_t>(i)];
            const float a = y[0], b = y[other];
            y[0] = a * c - b * sn;
            y[other] = b * c + a * sn;
          }
        }
      }
    });
  });
}

}  // namespace cadre
