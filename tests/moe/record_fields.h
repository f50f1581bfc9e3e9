// Every field of a capability record by name. A structured binding names them all, so that a field added to MoeRecord
// does not compile here until edges and mutations know it.
#pragma once

#include "moe/record.h"

namespace cadre::test {

// What a field is: how it is mutated follows from it.
struct SetOf {
  int values;  // bits that mean something
};
struct Limit {};     // the largest value admitted
struct Multiple {};  // values must be a multiple

template <class Record, class Visit>
void visit_fields(Record& record, Visit visit) {
  auto& [built, devices, cpu_isa, sm_families, activations_on, weight_types, weight_schemes, activation_types,
         gated_activations, plain_activations, clamp, activation_parameters, expert_bias, router_bias, routings,
         routings_unnormalized, router_logits, selection_bias, groups, per_expert_scale, router_weight_on_input,
         interleaved_gate_up, max_experts, max_top_k, width_multiple, max_width, intermediate_multiple,
         pads_intermediate, latent, adapters, max_rank, max_adapters, adapter_layouts, adapter_projections,
         adapters_with_input_weight, fully_sharded_adapters, adapter_expert_parallel, max_tensor_parallel,
         expert_parallel, max_data_parallel, sequence_parallel, rebalanced_experts, formats, repeatable,
         adapter_isolation, batch_invariant, invariant_with_adapters, graph_capture, workspace] = record;
  visit("built", built, nullptr);
  visit("devices", devices, SetOf{kCountOf<DeviceKind>});
  visit("cpu_isa", cpu_isa, nullptr);
  visit("sm_families", sm_families, SetOf{13});  // published families end at 12
  visit("activations_on", activations_on, SetOf{kCountOf<DeviceKind>});
  visit("weight_types", weight_types, SetOf{kCountOf<WeightType>});
  visit("weight_schemes", weight_schemes, SetOf{kCountOf<WeightScheme>});
  visit("activation_types", activation_types, SetOf{kCountOf<WeightType>});
  visit("gated_activations", gated_activations, SetOf{kCountOf<Activation>});
  visit("plain_activations", plain_activations, SetOf{kCountOf<Activation>});
  visit("clamp", clamp, nullptr);
  visit("activation_parameters", activation_parameters, nullptr);
  visit("expert_bias", expert_bias, nullptr);
  visit("router_bias", router_bias, nullptr);
  visit("routings", routings, SetOf{kCountOf<Routing>});
  visit("routings_unnormalized", routings_unnormalized, SetOf{kCountOf<Routing>});
  visit("router_logits", router_logits, SetOf{kCountOf<WeightType>});
  visit("selection_bias", selection_bias, nullptr);
  visit("groups", groups, nullptr);
  visit("per_expert_scale", per_expert_scale, nullptr);
  visit("router_weight_on_input", router_weight_on_input, nullptr);
  visit("interleaved_gate_up", interleaved_gate_up, nullptr);
  visit("max_experts", max_experts, Limit{});
  visit("max_top_k", max_top_k, Limit{});
  visit("width_multiple", width_multiple, Multiple{});
  visit("max_width", max_width, Limit{});
  visit("intermediate_multiple", intermediate_multiple, Multiple{});
  visit("pads_intermediate", pads_intermediate, nullptr);
  visit("latent", latent, nullptr);
  visit("adapters", adapters, nullptr);
  visit("max_rank", max_rank, Limit{});
  visit("max_adapters", max_adapters, Limit{});
  visit("adapter_layouts", adapter_layouts, SetOf{3});
  visit("adapter_projections", adapter_projections, SetOf{3});
  visit("adapters_with_input_weight", adapters_with_input_weight, nullptr);
  visit("fully_sharded_adapters", fully_sharded_adapters, nullptr);
  visit("adapter_expert_parallel", adapter_expert_parallel, SetOf{kCountOf<ExpertParallelKind>});
  visit("max_tensor_parallel", max_tensor_parallel, Limit{});
  visit("expert_parallel", expert_parallel, SetOf{kCountOf<ExpertParallelKind>});
  visit("max_data_parallel", max_data_parallel, Limit{});
  visit("sequence_parallel", sequence_parallel, nullptr);
  visit("rebalanced_experts", rebalanced_experts, nullptr);
  visit("formats", formats, SetOf{kCountOf<ActivationFormat>});
  visit("repeatable", repeatable, nullptr);
  visit("adapter_isolation", adapter_isolation, nullptr);
  visit("batch_invariant", batch_invariant, nullptr);
  visit("invariant_with_adapters", invariant_with_adapters, nullptr);
  visit("graph_capture", graph_capture, nullptr);
  visit("workspace", workspace, nullptr);
}

}  // namespace cadre::test
