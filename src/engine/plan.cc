// Plans: what the gate would choose for a model, on this machine or another, without loading it.
#include "engine/plan.h"

#include <algorithm>
#include <set>

#include "base/result.h"
#include "lora/adapter_reader.h"
#include "moe/spec_json.h"

namespace cadre {
namespace {

constexpr std::size_t kMaxModelLayers = 1 << 16;

Status check_options(const PlanOptions& o) {
  if (const int sources = !o.model_dir.empty() + !o.config_json.empty() + o.spec.has_value(); sources != 1) {
    return error(Code::kInvalidArgument, "plan: want one of model_dir, config_json and spec, got ",
                 sources == 0 ? "none" : "several");
  }
  if (o.spec && !o.hf_overrides.empty()) {
    return error(Code::kInvalidArgument,
                 "plan: overrides (--hf-overrides) are of a model's config, got a spec of its layers; change the spec");
  }
  if (o.spec && !o.adapters.empty()) {
    return error(Code::kInvalidArgument,
                 "plan: adapters need the model they are for, got a spec; declare them by max_loras, max_lora_rank and "
                 "expert_targets (--max-loras, --max-lora-rank, --targets)");
  }
  const auto within = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return error(Code::kInvalidArgument, "plan: ", name, " is ", value, ", want ", least, " to ", most);
  };
  CADRE_TRY(within("tensor_parallel", o.tensor_parallel, 1, kMaxRanks));
  CADRE_TRY(within("expert_parallel", o.expert_parallel, 1, kMaxRanks));
  CADRE_TRY(within("max_loras", o.max_loras, 0, kMaxLayerExperts));
  CADRE_TRY(within("max_lora_rank", o.max_lora_rank, 0, kMaxLayerExperts));
  CADRE_TRY(within("max_num_batched_tokens", o.max_num_batched_tokens, 1, kMaxCallTokens));
  for (const int tokens : o.tokens) CADRE_TRY(within("a number of tokens", tokens, 1, kMaxCallTokens));
  if (o.max_loras > 0 && o.expert_targets != 0 && o.max_lora_rank == 0 && o.adapters.empty()) {
    return error(Code::kInvalidArgument, "plan: adapters on experts are declared without a rank, want max_lora_rank");
  }
  return {};
}

Deployment common_deployment(const PlanOptions& o, const DeviceCaps& device) {
  Deployment d;
  d.device = device;
  d.activations_on = device.kind;
  d.need_batch_invariance = o.batch_invariant;
  std::vector<int> tokens = o.tokens;
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  for (const int n : tokens) d.token_mix.push_back({n, 1.0 / static_cast<double>(tokens.size())});
  d.max_tokens = static_cast<int>(
      std::max<std::int64_t>(o.max_num_batched_tokens, tokens.empty() ? 0 : std::int64_t{tokens.back()}));
  return d;
}

void spread(Deployment& d, const PlanOptions& o) {
  d.tensor_parallel = o.tensor_parallel;
  d.expert_parallel = o.expert_parallel;
  if (o.expert_parallel > 1) d.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
}

// The layers of a checkpoint as Model::prepare would ask for them. The model is opened for one rank: how attention is
// divided is no matter of the MoE layers, and nothing is sliced, so no weight is read.
Result<std::vector<LayerSelection>> layers_of_model(const PlanOptions& o, const Deployment& common, Plan& out) {
  std::vector<AdapterOptions> adapter_options;
  for (const AdapterSource& source : o.adapters) {
    CADRE_ASSIGN(AdapterOptions options,
                 parse_adapter_options(source.options).with_context("adapter '" + source.name + "'"));
    options.check_weights = false;  // a matter of running it
    adapter_options.push_back(options);
  }
  ModelOptions options;
  options.dir = o.model_dir;
  options.hf_overrides = o.hf_overrides;
  if (!o.config_json.empty()) {
    JsonParseOptions parsing;
    parsing.code = Code::kInvalidArgument;
    CADRE_ASSIGN(options.config, Json::parse(o.config_json, "config", parsing));
    options.dir = "config";
    options.weights = WeightOrigin::kNone;
  }
  options.device = make_cpu_device();
  options.caps = common.device;
  options.shapes_only = true;
  CADRE_ASSIGN(const std::unique_ptr<Model> model, Model::load(std::move(options)));
  out.name = model->config().model_type;
  if (const std::string& note = model->config().overrides_note; !note.empty()) out.notes.push_back(note);

  AdapterPlan plan;
  plan.slots = o.max_loras;
  plan.max_rank = o.max_lora_rank;
  plan.expert_projections = o.expert_targets;
  for (std::size_t i = 0; i < o.adapters.size(); ++i) {
    const AdapterSource& source = o.adapters[i];
    CADRE_ASSIGN(auto adapter, read_adapter(source.dir, source.name, model->adapter_targets(), adapter_options[i]));
    plan.known.push_back(std::move(adapter));
  }
  if (plan.slots == 0) plan.slots = static_cast<int>(plan.known.size());  // as the engine does
  std::vector<LayerSelection> layers = model->requests(common, plan);
  for (LayerSelection& layer : layers) spread(layer.deployment, o);
  return layers;
}

std::vector<LayerSelection> layers_of_spec(const PlanOptions& o, const Deployment& common) {
  std::vector<LayerSelection> layers;
  for (const LayerGroup& group : o.spec->layers) {
    LayerSelection layer{.layers = group.layers, .spec = group.spec, .deployment = common};
    spread(layer.deployment, o);
    const std::uint8_t has = group.spec.activation.gated ? kGate | kUp | kDown : kUp | kDown;
    AdapterDemand demand{.max_adapters = o.max_loras,
                         .max_rank = o.max_lora_rank,
                         .projections = static_cast<std::uint8_t>(o.expert_targets & has),
                         .layouts = kPerExpert | kSharedGateUpA};
    if (demand.any()) layer.deployment.adapters = demand;
    layers.push_back(std::move(layer));
  }
  return layers;
}

std::string shown_layers(const std::vector<int>& layers) {
  if (layers.empty()) return "a layer";
  if (layers.size() == 1) return "layer " + std::to_string(layers.front());
  return "layers " + ranges_text(layers);
}

}  // namespace

std::string ranges_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(layers[i]);
    if (last > i) text += "-" + std::to_string(layers[last]);
    i = last + 1;
  }
  return text;
}

LayerReport to_report(LayerSelection selection) {
  return {.layers = std::move(selection.layers),
          .spec = selection.spec,
          .deployment = std::move(selection.deployment),
          .selection = std::move(selection.selection),
          .rehearsal_seconds = selection.rehearsal.seconds,
          .rehearsal_error = selection.rehearsal.error};
}

Result<Plan> plan(const PlanOptions& options) {
  CADRE_TRY(check_options(options));
  Plan out;
  out.device = options.device.value_or(this_device());
  out.policy = options.backend;
  const Deployment common = common_deployment(options, out.device);
  std::vector<LayerSelection> layers;
  if (options.spec) {
    out.name = options.spec->name;
    layers = layers_of_spec(options, common);
  } else {
    CADRE_ASSIGN(layers, layers_of_model(options, common, out));
  }
  const MoeGate gate = make_moe_gate(options.backends);
  for (LayerSelection& layer : layers) {
    Status why;
    Result<Selection> selection = gate.explain(layer.spec, layer.deployment, options.backend, &why);
    if (!selection.ok()) return std::move(selection).status().with_context(shown_layers(layer.layers));
    if (!why.ok() && out.no_backend.ok()) out.no_backend = std::move(why).with_context(shown_layers(layer.layers));
    layer.selection = *std::move(selection);
    out.layers.push_back(to_report(std::move(layer)));
  }
  return out;
}

Json to_json_value(const LayerReport& report) {
  std::vector<Json> candidates;
  for (const Candidate& candidate : report.selection.candidates) candidates.push_back(to_json_value(candidate));
  const std::string& chosen = report.selection.chosen;
  return Json::object({{"layers", Json::array(report.layers)},
                       {"spec", to_json_value(report.spec)},
                       {"chosen", chosen.empty() ? Json() : Json(chosen)},
                       {"candidates", Json::array(std::move(candidates))},
                       {"warnings", Json::array(report.selection.warnings)}});
}

Json to_json_value(const Plan& plan) {
  std::vector<Json> layers;
  for (const LayerReport& report : plan.layers) layers.push_back(to_json_value(report));
  return Json::object({{"device", plan.device.name},
                       {"policy", to_json_value(plan.policy)},
                       {"layers", Json::array(std::move(layers))}});
}

std::string to_json(const Plan& plan) { return to_json_value(plan).dump(); }

Result<ModelSpec> model_spec_from_json(std::string_view text) {
  JsonParseOptions options;
  options.code = Code::kInvalidArgument;
  options.max_bytes = std::uint64_t{4} << 20;
  options.duplicates = JsonParseOptions::Duplicates::kRefuse;
  CADRE_ASSIGN(const Json json, Json::parse(text, "model spec", options));
  ModelSpec out;
  if (json.find("layers") == nullptr) {
    CADRE_ASSIGN(LayerSpec spec, read_layer_spec(json));
    out.layers.push_back({{0}, std::move(spec)});
    return out;
  }
  const auto refuse_unknown = [](const Json& object, std::initializer_list<std::string_view> known) -> Status {
    for (const auto& [key, value] : object.members()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      std::string list;
      for (const std::string_view k : known) list += (list.empty() ? "" : ", ") + std::string(k);
      return error(Code::kInvalidArgument, object.where(key), " is unknown, want one of: ", list);
    }
    return {};
  };
  CADRE_TRY(refuse_unknown(json, {"name", "layers"}));
  CADRE_ASSIGN(out.name, json.get_string_or("name", ""));
  CADRE_ASSIGN(const std::vector<Json> groups, json.get_array("layers"));
  if (groups.empty()) return error(Code::kInvalidArgument, json.where("layers"), " is empty, want at least one entry");
  std::set<int> seen;
  for (const Json& item : groups) {
    if (!item.is_object()) {
      return error(Code::kInvalidArgument, json.where("layers"), " has ", describe(item),
                   ", want objects {layers, spec}");
    }
    CADRE_TRY(refuse_unknown(item, {"layers", "spec"}));
    LayerGroup group;
    CADRE_ASSIGN(const std::vector<std::int64_t> layers, item.get_int_list("layers"));
    if (layers.empty()) return error(Code::kInvalidArgument, item.where("layers"), " is empty, want layer indices");
    for (const std::int64_t layer : layers) {
      if (layer < 0 || layer >= static_cast<std::int64_t>(kMaxModelLayers)) {
        return error(Code::kInvalidArgument, item.where("layers"), " has ", layer, ", want 0 to ", kMaxModelLayers - 1);
      }
      if (!seen.insert(static_cast<int>(layer)).second) {
        return error(Code::kInvalidArgument, item.where("layers"), " has layer ", layer, " a second time");
      }
      group.layers.push_back(static_cast<int>(layer));
    }
    CADRE_ASSIGN(const Json spec, item.get_object("spec"));
    CADRE_ASSIGN(group.spec, read_layer_spec(spec));
    out.layers.push_back(std::move(group));
  }
  return out;
}

}  // namespace cadre
