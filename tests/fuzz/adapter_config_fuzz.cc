// adapter_config.json as anyone may write it: parsed, and its patterns matched against names that models have.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lora/adapter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = cadre::AdapterConfig::parse({reinterpret_cast<const char*>(data), size}, "adapter_config.json");
  if (!config.ok()) {
    if (config.status().message().empty()) std::abort();
    return 0;
  }
  for (const std::string_view name : {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.experts.gate_up_proj",
                                      "backbone.layers.3.mixer.experts.127.down_proj", "lm_head"}) {
    const auto term = config->term(name, "model.layers.1.mlp.experts.3.up_proj");
    if (term.ok() && (term->rank < 1 || term->scale != term->scale)) std::abort();
    (void)config->targets_parameter(name);
  }
  return 0;
}
