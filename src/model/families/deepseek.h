// What DeepSeek-V2 and V3 share: latent attention, dense first layers, routed experts beside shared ones.
#pragma once

#include "model/blocks/mla.h"
#include "model/families/dense_first.h"

namespace cadre {

struct DeepseekModel {
  MlaOptions attention;
  LayerSpec experts;             // with its routing
  std::int64_t layers = 0;       // of the model itself
  std::int64_t first_dense = 0;  // first_k_dense_replace: layers before the first MoE layer
  std::int64_t dense_size = 0;   // intermediate size of those
  bool mlp_bias = false;         // of dense layers and shared experts
};

// What a family's own config class has for a field that is absent.
struct DeepseekDefaults {
  std::int64_t first_dense = 0, shared_experts = 0;
  float routed_scale = 1;
};

// Everything but the routing class and its groups. Refuses what no DeepSeek model does.
Result<DeepseekModel> read_deepseek(Builder& builder, const DeepseekDefaults& defaults);

// n_group and topk_group.
Status read_expert_groups(const Json& json, LayerSpec& spec);

Status build_deepseek(Builder& builder, Network& network, const DeepseekModel& model);

}  // namespace cadre
