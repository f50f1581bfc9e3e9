// The functions of cadre.h whose answer is JSON.
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "api/c_engine.h"
#include "moe/spec_json.h"

namespace cadre::api {
namespace {

Result<Deployment> read_deployment(const cadre_deployment* given, const LayerSpec& spec) {
  Deployment out;
  out.device = this_device();
  if (given == nullptr) return out;
  CADRE_ASSIGN(const cadre_deployment d, read_struct(given, "deployment"));
  const auto take = [](std::string_view name, std::int32_t value, int& field) -> Status {
    constexpr std::int32_t kMost = 1 << 20;
    if (value < 0 || value > kMost) {
      return error(Code::kInvalidArgument, "deployment.", name, " is ", value, ", want 0 to ", kMost);
    }
    if (value != 0) field = value;
    return {};
  };
  CADRE_TRY(take("threads", d.threads, out.device.cores));
  CADRE_TRY(take("max_adapters", d.max_adapters, out.adapters.max_adapters));
  CADRE_TRY(take("max_adapter_rank", d.max_adapter_rank, out.adapters.max_rank));
  CADRE_TRY(take("tensor_parallel", d.tensor_parallel, out.tensor_parallel));
  CADRE_TRY(take("expert_parallel", d.expert_parallel, out.expert_parallel));
  CADRE_TRY(take("max_tokens", d.max_tokens, out.max_tokens));
  if (d.workspace_limit < 0) {
    return error(Code::kInvalidArgument, "deployment.workspace_limit is ", d.workspace_limit, ", want 0 or more bytes");
  }
  if ((d.max_adapters > 0) != (d.max_adapter_rank > 0)) {
    return error(Code::kInvalidArgument, "deployment.max_adapters is ", d.max_adapters, " and max_adapter_rank is ",
                 d.max_adapter_rank, ", want both or neither");
  }
  out.need_batch_invariance = d.batch_invariant != 0;
  out.workspace_limit = d.workspace_limit;
  // As the engine plans for adapters that it has not seen yet.
  if (d.max_adapters > 0) {
    out.adapters.projections = spec.activation.gated ? kGate | kUp | kDown : kUp | kDown;
    out.adapters.layouts = kPerExpert | kSharedGateUpA;
  }
  if (out.expert_parallel > 1) out.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
  return out;
}

Json to_json_value(const AdapterInfo& info) {
  return Json::object({{"name", info.name},
                       {"dir", info.dir},
                       {"digest", info.digest},
                       {"version", info.version},
                       {"slot", info.slot},
                       {"max_rank", info.max_rank},
                       {"bytes", info.bytes}});
}

Json to_json_value(const LayerReport& report) {
  std::vector<Json> candidates;
  for (const Candidate& c : report.selection.candidates) candidates.push_back(cadre::to_json_value(c));
  return Json::object({{"layers", Json::array(report.layers)},
                       {"spec", cadre::to_json_value(report.spec)},
                       {"chosen", report.selection.chosen},
                       {"candidates", Json::array(std::move(candidates))},
                       {"warnings", Json::array(report.selection.warnings)}});
}

std::string info_json(const Engine& engine) {
  std::vector<Json> adapters, layers;
  for (const AdapterInfo& info : engine.adapters()) adapters.push_back(to_json_value(info));
  for (const LayerReport& report : engine.selection()) layers.push_back(to_json_value(report));
  return Json::object({{"model_type", engine.model_type()},
                       {"vocab_size", engine.vocab_size()},
                       {"max_model_len", engine.max_model_len()},
                       {"backends", engine.backend_names()},
                       {"notes", Json::array(engine.notes())},
                       {"adapters", Json::array(std::move(adapters))},
                       {"layers", Json::array(std::move(layers))}})
      .dump();
}

}  // namespace
}  // namespace cadre::api

using cadre::Status;
using cadre::api::copy_text;
using cadre::api::guarded;
using cadre::api::missing;

extern "C" {

cadre_code cadre_engine_info_json(const cadre_engine* engine, char** json) {
  return guarded([&]() -> Status {
    if (json == nullptr) return missing("json");
    *json = nullptr;
    if (engine == nullptr) return missing("engine");
    CADRE_ASSIGN(*json, copy_text(cadre::api::info_json(*engine->engine)));
    return {};
  });
}

cadre_code cadre_select_json(const char* spec_json, const cadre_deployment* deployment, const char* policy,
                             char** json) {
  return guarded([&]() -> Status {
    if (json == nullptr) return missing("json");
    *json = nullptr;
    if (spec_json == nullptr) return missing("spec_json");
    CADRE_ASSIGN(const cadre::LayerSpec spec, cadre::layer_spec_from_json(spec_json));
    CADRE_ASSIGN(const cadre::Deployment where, cadre::api::read_deployment(deployment, spec));
    CADRE_ASSIGN(const cadre::Policy how, cadre::parse_policy(policy == nullptr ? "auto" : policy, "api"));
    cadre::Selection all;
    Status verdict = cadre::select(spec, where, how, &all).status();
    if (!verdict.ok() && verdict.code() != cadre::Code::kNoBackend) return verdict;
    CADRE_ASSIGN(*json, copy_text(cadre::to_json(all)));
    return verdict;
  });
}

cadre_code cadre_check_adapter_json(const char* model_dir, const char* adapter_dir, const char* options, char** json) {
  return guarded([&]() -> Status {
    if (json == nullptr) return missing("json");
    *json = nullptr;
    if (model_dir == nullptr) return missing("model_dir");
    if (adapter_dir == nullptr) return missing("adapter_dir");
    CADRE_ASSIGN(const cadre::AdapterCheck check,
                 cadre::check_adapter(model_dir, {.name = "adapter",
                                                  .dir = adapter_dir,
                                                  .options = std::string(cadre::api::text_or_empty(options))}));
    CADRE_ASSIGN(*json, copy_text(check.json));
    return {};
  });
}

}  // extern "C"
