#pragma once

#include "moe/experts.h"

namespace cadre {
namespace cpu_vector {
struct VectorKernels;
}

// Makes a packed copy of the weights; the source is not needed afterwards. Numbers: float32 throughout, nothing is
// rounded to BF16 on the way, so against cpu_reference only the order of sums and fused products differ, and an exp
// that is within 2 units in the last place. `kernels`: those of another instruction set than the widest, for tests.
Result<std::unique_ptr<Experts>> prepare_cpu_vector(const MoeAdmission& admission, const ExpertInputs& inputs,
                                                    const cpu_vector::VectorKernels* kernels = nullptr);

}  // namespace cadre
