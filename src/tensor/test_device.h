// A device that behaves like a GPU where it matters: its memory cannot be read or written outside an op, host memory
// is always copied in, and ops run later, on another thread, in stream order. What passes here dereferences nothing
// it should not and waits where it must. For tests and for `--device-model test`; slow.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace cadre {

// Reserves `capacity` bytes of address space; memory is used as it is touched.
Result<std::shared_ptr<Device>> make_test_device(std::size_t capacity);

}  // namespace cadre
