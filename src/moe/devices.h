// Machines that deployments can be planned for without being there.
#pragma once

#include <cadre/moe_spec.h>

#include <vector>

namespace cadre {

// Descriptions of typical machines, by name. DeviceCaps::described is set: the gate waives that they are absent, and
// gives no admission that could be prepared.
const std::vector<DeviceCaps>& built_in_devices();

}  // namespace cadre
