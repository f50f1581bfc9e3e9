// The plan of one call: which (token, k) pairs each expert of this rank works on.
#pragma once

#include "tensor/exec.h"

namespace cadre {

// Pairs are numbered t * K + k. Those of other ranks' experts, of id -1 and of ids outside the layer fall out.
struct MoePlan {
  View pair;    // int32 [T * K] pairs ordered by expert, then adapter slot, then pair; the first offset[local] count
  View offset;  // int32 [local + 1] first place of each local expert in `pair`
  View place;   // int32 [T * K] place of each pair in `pair`, -1 where it fell out
};

// Allocates from the arena and enqueues the sort. first..last are this rank's experts; slots is int32 [T] or undefined.
MoePlan make_plan(const Exec& exec, View ids, View slots, std::int64_t first, std::int64_t last);

}  // namespace cadre
