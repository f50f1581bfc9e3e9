#pragma once

#include "moe/experts.h"

namespace cadre {

// Takes weights in place where rows are contiguous, and a dense copy where the file stores them transposed.
Result<std::unique_ptr<Experts>> prepare_cpu_reference(const MoeAdmission& admission, const ExpertInputs& inputs);

}  // namespace cadre
