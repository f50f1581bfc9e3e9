#pragma once

#include "moe/experts.h"

namespace scalar {

// What becomes of one element of gate and up.
using Combine = float (*)(float gate, float up);
float silu_gate(float gate, float up);  // gate * sigmoid(gate) * up

cadre::Result<std::unique_ptr<cadre::Experts>> make_experts(const cadre::MoeAdmission& admission,
                                                            const cadre::ExpertInputs& inputs, Combine combine);

}  // namespace scalar
