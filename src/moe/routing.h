// Routing: router logits to expert ids and weights, always in float32. Each class of include/cadre/moe_spec.h is a
// mathematics of its own; none is an approximation of another.
#pragma once

#include <cadre/moe_spec.h>

#include "tensor/exec.h"

namespace cadre {

struct RouteArgs {
  View ids;               // int32 [T, K], out, by descending selection score; ties to the lower id
  View weights;           // float32 [T, K], out
  View logits;            // float32 [T, E], the router's bias already added
  View selection_bias;    // [E] of the file's dtype, where the spec has one
  View per_expert_scale;  // [E], where the spec has one
};

void route(const Exec& exec, const RouteArgs& args, const RoutingSpec& spec);

// One row, for route() and for other CPU code. scores is scratch of 2 * experts floats.
void route_row(const RoutingSpec& spec, const float* logits, const float* bias, const float* scale, int experts, int k,
               std::int32_t* ids, float* weights, float* scores);

}  // namespace cadre
