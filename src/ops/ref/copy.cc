#include <algorithm>

#include "ops/ref/access.h"
#include "ops/ref/reference_ops.h"

namespace cadre {

void ReferenceOps::copy(const Exec& exec, View out, View x) const {
  x = with_heads(x);
  out = with_heads(out);
  const std::int64_t tokens = x.dim(0), heads = x.dim(1), width = x.dim(2);
  CADRE_CHECK(is_activation(x, {tokens, heads, width}), "copy: x is not float32 [T, H] or [T, heads, D]");
  CADRE_CHECK(is_activation(out, {tokens, heads, width}), "copy: out differs from x");

  exec.launch([=, threads = exec.threads] {
    threads->parallel_for(tokens * heads, grain_for(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy_n(row(x, i / heads, i % heads), width, row(out, i / heads, i % heads));
      }
    });
  });
}

}  // namespace cadre
