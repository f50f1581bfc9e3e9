#include "ops/ref/reference_ops.h"

namespace cadre {

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<ReferenceOps>(); }

}  // namespace cadre
