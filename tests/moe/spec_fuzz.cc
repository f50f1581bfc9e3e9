// Specs and deployments from JSON: whatever a file says, it is read or refused; what is read is written the same way,
// and the gate looks at it without overflow.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "moe/experts.h"
#include "moe/spec_json.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cadre;
  JsonParseOptions options;
  options.max_bytes = 1 << 16;
  options.code = Code::kInvalidArgument;
  const Result<Json> json = Json::parse({reinterpret_cast<const char*>(data), size}, "fuzz", options);
  if (!json.ok()) return 0;
  // A file with both, or one of them alone.
  const Json* spec_part = json->find("spec");
  const Json* deployment_part = json->find("deployment");
  const Result<LayerSpec> spec = read_layer_spec(spec_part != nullptr ? *spec_part : *json);
  const Result<Deployment> deployment = read_deployment(deployment_part != nullptr ? *deployment_part : *json);
  if (spec.ok()) {
    const Result<LayerSpec> again = read_layer_spec(to_json_value(*spec));
    require(again.ok() && *again == *spec && hash_value(*again) == hash_value(*spec));
    require(!describe(*spec).empty());
  }
  if (deployment.ok()) {
    const Result<Deployment> again = read_deployment(to_json_value(*deployment));
    require(again.ok() && *again == *deployment && hash_value(*again) == hash_value(*deployment));
    require(!describe(*deployment).empty());
  }
  if (!spec.ok() && !deployment.ok()) return 0;
  const LayerSpec any = {.experts = 8, .top_k = 2, .hidden = 64, .intermediate = 64};
  const Result<Selection> selection =
      make_moe_gate().explain(spec.ok() ? *spec : any, deployment.ok() ? *deployment : Deployment{}, Policy{});
  // Both are valid by themselves, so the gate has an answer, if only that nobody admits the layer.
  require(selection.ok());
  for (const Candidate& c : selection->candidates) require(c.admitted == c.refusals.empty());
  return 0;
}
