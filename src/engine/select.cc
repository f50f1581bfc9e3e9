// The gate for those who embed it: select, specs as JSON, this machine, adapter checks.
#include <cadre/engine.h>

#include <thread>

#include "base/result.h"
#include "lora/adapter_reader.h"
#include "lora/adapter_report.h"
#include "model/model.h"
#include "moe/devices.h"
#include "moe/spec_json.h"

namespace cadre {

DeviceCaps this_device() {
  DeviceCaps caps;
  caps.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#if defined(__x86_64__)
  // These ask the operating system as well as the processor.
  caps.avx2 = __builtin_cpu_supports("avx2") != 0;
  caps.avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  caps.avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return caps;
}

std::vector<DeviceCaps> described_devices() { return built_in_devices(); }

Result<DeviceCaps> find_device(std::string_view name) {
  DeviceCaps here = this_device();
  if (name == here.name) return here;
  std::string known = here.name + " (this machine)";
  for (const DeviceCaps& device : built_in_devices()) {
    if (device.name == name) return device;
    known += ", " + device.name;
  }
  return error(Code::kNotFound, "unknown device '", name, "', want one of: ", known);
}

Result<Selection> select(const LayerSpec& spec, const Deployment& deployment, const Policy& policy, Selection* all) {
  Status why;
  CADRE_ASSIGN(Selection selection, make_moe_gate().explain(spec, deployment, policy, &why));
  if (all != nullptr) *all = selection;
  if (!why.ok()) return why;
  return selection;
}

Result<LayerSpec> layer_spec_from_json(std::string_view text) {
  JsonParseOptions options;
  options.code = Code::kInvalidArgument;
  CADRE_ASSIGN(const Json json, Json::parse(text, "layer spec", options));
  return read_layer_spec(json);
}

std::string to_json(const LayerSpec& spec) { return to_json_value(spec).dump(); }

std::string to_json(const Selection& selection) {
  std::vector<Json> candidates;
  for (const Candidate& c : selection.candidates) candidates.push_back(to_json_value(c));
  Json chosen;
  if (!selection.chosen.empty()) chosen = selection.chosen;
  return Json::object({{"policy", to_json_value(selection.policy)},
                       {"chosen", chosen},
                       {"candidates", Json::array(std::move(candidates))},
                       {"warnings", Json::array(selection.warnings)}})
      .dump();
}

Result<AdapterCheck> check_adapter(const std::string& model_dir, const AdapterSource& source,
                                   const std::string& hf_overrides) {
  CADRE_ASSIGN(const AdapterOptions adapter_options, parse_adapter_options(source.options));
  ModelOptions options;
  options.dir = model_dir;
  options.hf_overrides = hf_overrides;
  options.device = make_cpu_device();
  options.caps = this_device();
  CADRE_ASSIGN(const std::unique_ptr<Model> model, Model::load(std::move(options)));
  CADRE_ASSIGN(const AdapterVerdict verdict,
               judge_adapter(source.dir, source.name, model->adapter_targets(), adapter_options));
  return AdapterCheck{.usable = verdict.usable, .text = verdict.text, .json = verdict.json.dump()};
}

}  // namespace cadre
