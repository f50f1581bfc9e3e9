// DeepSeek-V2, V2-Lite and Coder-V2 (arXiv:2405.04434): latent attention, with low-rank queries in the large model;
// dense first layers, then experts beside shared ones. Softmax over all experts; the choice is plain (greedy) or among
// the experts of the best groups, a group being as good as its best expert (group_limited_greedy). Weights are scaled
// and not renormalised.
#include "base/result.h"
#include "model/families/deepseek.h"

namespace cadre {

Status build_deepseek_v2(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_TRY(want_string(json, "scoring_func", {"softmax"}));
  CADRE_TRY(want_string(json, "topk_method", {"greedy", "group_limited_greedy"}));
  CADRE_ASSIGN(const std::string method, json.get_string_or("topk_method", "greedy"));
  CADRE_ASSIGN(const bool renormalise, json.get_bool_or("norm_topk_prob", false));
  if (renormalise) {
    return error(
        Code::kUnsupported, json.where("norm_topk_prob"),
        " is true, want false: DeepSeek's own code and transformers disagree on what it means for this family");
  }
  CADRE_ASSIGN(DeepseekModel model, read_deepseek(b, {.first_dense = 0, .shared_experts = 2, .routed_scale = 1.0f}));
  CADRE_ASSIGN(model.mlp_bias, json.get_bool_or("mlp_bias", false));
  model.attention.rope.interleaved = true;
  model.experts.routing.kind = Routing::kSoftmaxTopK;
  if (method == "group_limited_greedy") {
    CADRE_TRY(read_expert_groups(json, model.experts));
  } else {
    b.ignored_fields.insert(b.ignored_fields.end(), {"n_group", "topk_group"});  // a greedy choice is among all
  }
  return build_deepseek(b, network, model);
}

}  // namespace cadre
