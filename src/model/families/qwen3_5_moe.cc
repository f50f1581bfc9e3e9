// The text part of Qwen3.5-MoE (35B-A3B and its kin): Qwen3-Next whose delta nets have a projection each for queries,
// keys and values, for gates, for b and for a; every layer is sparse and every weight renormalised. Its rotary
// embedding of three axes (mrope_section) is the plain one for text, where all three positions are the same.
#include "base/result.h"
#include "model/families/qwen_hybrid.h"

namespace cadre {

Status build_qwen3_5_moe_text(Builder& b, Network& network) {
  b.ignored_prefixes.emplace_back("model.visual.");
  return build_qwen_hybrid(b, network, {.all_sparse = true, .top_k = 8, .experts = 256});
}

}  // namespace cadre
