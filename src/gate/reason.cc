#include <cadre/selection.h>

#include <array>

#include "base/result.h"

namespace cadre {

const ReasonInfo& reason_info(Reason reason) {
  static constexpr std::array<ReasonInfo, static_cast<std::size_t>(Reason::kCount)> kTable = {{
      {"not_in_this_build", "the build", true},
      {"device_absent", "the device", true},
      {"device_kind", "the kind of device", true},
      {"instruction_set", "the processor's instruction set", true},
      {"compute_capability", "the compute capability", true},
      {"activations_elsewhere", "where the activations live"},
      {"weight_type", "the weights' type"},
      {"weight_scheme", "the weights' scheme"},
      {"activation_type", "the activations' type"},
      {"activation", "the activation function"},
      {"not_gated", "gating"},
      {"gated", "gating"},
      {"activation_clamp", "the clamp before the activation"},
      {"activation_parameters", "the activation's alpha and beta"},
      {"expert_bias", "expert biases"},
      {"router_bias", "the router's bias"},
      {"routing", "the routing method"},
      {"router_logits_type", "the router logits' type"},
      {"router_weight_on_input", "the place of the router weight"},
      {"interleaved_gate_up", "the order of gate and up rows"},
      {"too_many_experts", "the number of experts on each rank"},
      {"top_k", "experts for each token"},
      {"hidden_size", "the width experts read and write"},
      {"intermediate_size", "the intermediate size on each rank"},
      {"latent_size", "the latent size"},
      {"adapters", "LoRA adapters on experts"},
      {"adapter_rank", "the largest adapter rank"},
      {"adapter_count", "the number of adapters"},
      {"adapter_layout", "the adapters' layout"},
      {"adapter_projection", "the projections adapters touch"},
      {"adapter_sharding", "the adapters' split over ranks"},
      {"tensor_parallel", "tensor parallelism"},
      {"expert_parallel", "expert parallelism"},
      {"data_parallel", "data parallelism"},
      {"sequence_parallel", "sequence parallelism"},
      {"expert_rebalancing", "experts that move between ranks"},
      {"activation_format", "the activation format"},
      {"not_repeatable", "the same bits for the same call"},
      {"not_isolated", "base rows untouched by adapters"},
      {"not_batch_invariant", "rows untouched by the batch"},
      {"graph_capture", "graph capture"},
      {"workspace", "the workspace"},
      {"excluded", "the policy"},
      {"rehearsal", "the rehearsal on this layer's weights"},
  }};
  return kTable[static_cast<std::size_t>(reason)];
}

std::string message(const Refusal& refusal) {
  return std::string(reason_info(refusal.code).subject) + ": got " + refusal.got + ", want " + refusal.want;
}

}  // namespace cadre
