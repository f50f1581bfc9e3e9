// DeepSeek-V3 and R1 (arXiv:2412.19437), Moonlight, and Kimi K2, which is the same under a name of its own with one
// group of experts. Latent attention; dense first layers, then experts beside shared ones. Sigmoid scores; the choice
// is by score plus a bias, among the experts of the best groups, a group being as good as its two best; weights are the
// scores without the bias, renormalised and scaled. The layers that predict further tokens are not run.
#include "base/result.h"
#include "model/families/deepseek.h"

namespace cadre {

Status build_deepseek_v3(Builder& b, Network& network) {
  const Json& json = b.config.json;
  CADRE_TRY(want_string(json, "scoring_func", {"sigmoid"}));
  CADRE_TRY(want_string(json, "topk_method", {"noaux_tc"}));
  CADRE_ASSIGN(DeepseekModel model, read_deepseek(b, {.first_dense = 3, .shared_experts = 1, .routed_scale = 2.5f}));
  CADRE_ASSIGN(model.attention.rope.interleaved, json.get_bool_or("rope_interleave", true));
  RoutingSpec& routing = model.experts.routing;
  routing.kind = Routing::kSigmoidTopK;
  routing.selection_bias = true;
  CADRE_ASSIGN(routing.renormalize, json.get_bool_or("norm_topk_prob", true));
  CADRE_TRY(read_expert_groups(json, model.experts));

  CADRE_TRY(ignore_draft_layers(b, model.layers));
  return build_deepseek(b, network, model);
}

}  // namespace cadre
