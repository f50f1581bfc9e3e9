// Layers of published models and machines they run on, as gate tests use them.
#pragma once

#include <cadre/moe_spec.h>

#include <string_view>
#include <vector>

namespace cadre::test {

struct NamedSpec {
  std::string_view name;
  LayerSpec spec;
};
struct NamedDevice {
  std::string_view name;
  DeviceCaps caps;
};

const std::vector<NamedSpec>& preset_specs();
const std::vector<NamedDevice>& preset_devices();
LayerSpec spec_of(std::string_view name);
// That machine with the activations on it, prefill chunks of 8192 rows on a GPU and 512 on a CPU.
Deployment on(std::string_view device);
// The same with adapters on every projection.
Deployment with_lora(Deployment deployment, int max_rank = 16, int max_adapters = 4);

}  // namespace cadre::test
