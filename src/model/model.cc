#include "model/model.h"

#include <algorithm>

#include "base/result.h"
#include "base/size_text.h"
#include "model/blocks/moe_mixer.h"
#include "model/config_fields.h"
#include "model/dummy_weights.h"
#include "model/families/family.h"
#include "model/tensor_plan.h"
#include "model/text_part.h"

namespace cadre {
namespace {

// Tensors that older exports store and nothing reads: the tables are computed from the config.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

Status refuse_left_over(const std::string& dir, const WeightLoader& loader, const std::vector<std::string>& ignored) {
  std::vector<std::string> names;
  for (std::string& name : loader.left_over()) {
    const bool known = is_derived(name) || std::any_of(ignored.begin(), ignored.end(), [&](const std::string& prefix) {
                         return name.starts_with(prefix);
                       });
    if (!known) names.push_back(std::move(name));
  }
  if (names.empty()) return {};
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 5); ++i) list += (i ? ", " : "") + names[i];
  if (names.size() > 5) list += ", ...";
  return error(Code::kInvalidFile, dir, ": ", names.size(),
               " tensors of the checkpoint have no place in the model that ", "config.json describes: ", list,
               "; the config is of another model or a newer version");
}

std::string memory_note(const Quantisation& quantisation, const Checkpoint& checkpoint, std::int64_t bytes) {
  return std::string("weights are ") + quantisation.name() + " in the file (" + size_text(checkpoint.tensor_bytes()) +
         ") and BF16 in memory: " + size_text(bytes);
}

std::map<int, std::string> backend_by_layer(const std::vector<LayerSelection>& selections) {
  std::map<int, std::string> out;
  for (const LayerSelection& group : selections) {
    for (const int layer : group.layers) out[layer] = group.selection.chosen;
  }
  return out;
}

// What a packed copy of one layer's experts takes beyond the pages that it replaces, on this rank. Made weights are not
// read again, so they stay.
std::int64_t beside_source(const MoeAdmission& admission, WeightOrigin weights) {
  const LayerSpec& spec = admission.spec();
  const Deployment& deployment = admission.deployment();
  const std::int64_t packed = admission.backend().prepared_bytes(spec, deployment);
  if (packed == 0 || weights != WeightOrigin::kFiles) return packed;
  const std::int64_t element = spec.weights.type == WeightType::kF32 ? 4 : 2;
  return packed - element * (spec.activation.gated ? 3 : 2) * experts_per_rank(spec, deployment) * spec.expert_width() *
                      intermediate_per_rank(spec, deployment);
}

Result<std::shared_ptr<Checkpoint>> open_weights(const ModelOptions& o, const ModelConfig& config,
                                                 std::vector<std::string>& notes) {
  if (o.weights == WeightOrigin::kFiles) return open_model_weights(o.dir, config, &notes);
  CADRE_ASSIGN(TensorPlan plan, plan_tensors(config, o.dir));
  if (o.weights == WeightOrigin::kNone) return std::move(plan.checkpoint);
  notes.push_back("the weights are random numbers (seed " + std::to_string(o.seed) + "), so the answers are too");
  ThreadPool alone(1);
  return make_dummy_weights(*plan.checkpoint, o.seed, o.threads != nullptr ? *o.threads : alone);
}

}  // namespace

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(ModelOptions options) {
  std::unique_ptr<Model> m(new Model());
  m->options_ = std::move(options);
  const ModelOptions& o = m->options_;
  if (o.config) {
    CADRE_ASSIGN(m->config_, parse_model_config(*o.config, o.hf_overrides));
  } else {
    CADRE_ASSIGN(m->config_, read_model_config(o.dir, o.hf_overrides));
  }
  const std::string& override = m->config_.overrides_note;
  if (!override.empty()) m->notes_.push_back(override);
  CADRE_ASSIGN(const Family* family, find_family(m->config_.model_type).with_context(o.dir + "/config.json"));
  CADRE_ASSIGN(std::shared_ptr<Checkpoint> checkpoint, open_weights(o, m->config_, m->notes_));
  const std::int64_t bytes = weight_memory(*checkpoint, m->config_.quantisation);
  m->weight_bytes_ = static_cast<std::uint64_t>(bytes);
  if (m->config_.quantisation.method != Quantisation::Method::kNone) {
    m->notes_.push_back(memory_note(m->config_.quantisation, *checkpoint, bytes));
  }
  for (const std::string& name : checkpoint->unlisted())
    m->notes_.push_back("tensor '" + name + "' is not listed in the index");
  m->loader_ = std::make_unique<WeightLoader>(checkpoint, o.device, o.check_weights, m->config_.quantisation,
                                              !o.shapes_only && o.weights != WeightOrigin::kNone);
  m->builder_ = std::make_unique<Builder>(m->config_, *m->loader_, o.ranks);
  m->stream_ = o.device->make_stream();
  m->builder_->targets.model_type = m->config_.model_type;
  Status built = family->build(*m->builder_, m->network_);
  const auto blamed = [&](Status status) {
    return status.ok() || override.empty() ? status : std::move(status).with_context(override);
  };
  CADRE_TRY(blamed(std::move(built)));
  CADRE_TRY(refuse_unknown_fields(m->config_, m->builder_->ignored_fields));
  for (auto& alias : text_part_aliases()) m->builder_->targets.prefix_aliases.push_back(std::move(alias));
  CADRE_TRY(blamed(refuse_left_over(o.dir, *m->loader_, m->builder_->ignored_prefixes)));
  m->config_.layers = m->builder_->targets.layers;
  if (o.progress) o.progress(0.5);
  return m;
}

void Model::add_needs(const Adapter& adapter, std::map<int, AdapterDemand>* needs) {
  for (const auto& [target, lora] : adapter.experts) {
    AdapterDemand& d = (*needs)[target];
    d.projections |= static_cast<std::uint8_t>((lora.gate.empty() ? 0 : kGate) | (lora.up.empty() ? 0 : kUp) |
                                               (lora.down.empty() ? 0 : kDown));
    d.max_rank = std::max(d.max_rank, lora.max_rank());
    const bool shared = !lora.gate.empty() && !lora.up.empty() && lora.gate[0].rank() > 0 && lora.up[0].rank() > 0 &&
                        lora.gate[0].a.data == lora.up[0].a.data;
    d.layouts |= static_cast<std::uint8_t>(lora.shared_outer() ? kSharedOuter : shared ? kSharedGateUpA : kPerExpert);
  }
}

std::map<std::string, MoeTime> Model::moe_times() const {
  std::map<std::string, MoeTime> times = earlier_times_;
  for (const LayerSelection& group : selections_) {
    MoeTime& sum = times[group.selection.chosen];
    for (const MoeLayer& layer : builder_->moe_layers) {
      if (std::find(group.layers.begin(), group.layers.end(), layer.layer) == group.layers.end()) continue;
      const MoeTime time = layer.mixer->time();
      sum.seconds += time.seconds;
      sum.calls += time.calls;
    }
  }
  return times;
}

AdapterDemand Model::demand(int target, const AdapterPlan& plan) const {
  AdapterDemand d;
  d.max_adapters = plan.slots;
  d.projections = plan.expert_projections;
  d.layouts = plan.expert_projections != 0 ? kPerExpert | kSharedGateUpA : 0;
  d.max_rank = plan.expert_projections != 0 ? plan.max_rank : 0;
  std::map<int, AdapterDemand> needs = plan.needs;
  for (const auto& adapter : plan.known) add_needs(*adapter, &needs);
  if (const auto it = needs.find(target); it != needs.end()) {
    d.projections |= it->second.projections;
    d.layouts |= it->second.layouts;
    d.max_rank = std::max({d.max_rank, it->second.max_rank, plan.max_rank});
  }
  const std::uint8_t has =
      builder_->targets.experts[static_cast<std::size_t>(target)].gated ? kGate | kUp | kDown : kUp | kDown;
  d.projections &= has;
  if (d.projections == 0) d = AdapterDemand{};
  return d;
}

std::vector<LayerSelection> Model::requests(const Deployment& base, const AdapterPlan& plan) const {
  std::vector<LayerSelection> out;
  for (const MoeLayer& layer : builder_->moe_layers) {
    Deployment deployment = base;
    deployment.device = options_.caps;
    deployment.adapters = demand(layer.target, plan);
    deployment.activation_type = layer.spec.weights.type;  // F16 and F32 models are not rounded to BF16
    const Ranks& r = options_.ranks;
    deployment.tensor_parallel = r.expert_parallel ? 1 : r.size;
    deployment.expert_parallel = r.expert_parallel ? r.size : 1;
    if (r.expert_parallel && r.size > 1) deployment.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
    const auto same = std::find_if(out.begin(), out.end(), [&](const LayerSelection& s) {
      return s.spec == layer.spec && s.deployment == deployment;
    });
    if (same != out.end()) {
      same->layers.push_back(layer.layer);
    } else {
      out.push_back({.layers = {layer.layer}, .spec = layer.spec, .deployment = deployment});
    }
  }
  return out;
}

Result<std::unique_ptr<Experts>> Model::prepare_layer(const MoeAdmission& admission, const MoeLayer& layer) const {
  return admission.prepare({.weights = layer.weights.get(),
                            .device = options_.device.get(),
                            .stream = stream_.get(),
                            .shard = options_.ranks.expert_shard()});
}

Result<std::pair<MoeAdmission, std::unique_ptr<Experts>>> Model::choose(const MoeGate& gate,
                                                                        const SelectOptions& options,
                                                                        LayerSelection& group) const {
  const MoeLayer& first = *std::find_if(builder_->moe_layers.begin(), builder_->moe_layers.end(),
                                        [&](const MoeLayer& layer) { return layer.layer == group.layers.front(); });
  ThreadPool alone(1);
  ThreadPool& threads = options.threads != nullptr ? *options.threads : alone;
  std::map<std::string, std::string> failed;  // backends whose rehearsal failed, with what was seen
  std::vector<std::string> warnings;
  while (true) {
    CADRE_ASSIGN(Choice<MoeOp> choice, gate.select(group.spec, group.deployment, options.policy, failed));
    CADRE_ASSIGN(std::unique_ptr<Experts> experts, prepare_layer(choice.admission, first));
    group.selection = std::move(choice.selection);
    if (options.rehearse == RehearseMode::kOff) return std::pair(choice.admission, std::move(experts));

    // The reference is rehearsed against itself: the sampled rows alone and in the batch.
    std::unique_ptr<Experts> reference;
    if (group.selection.chosen != "cpu_reference") {
      CADRE_ASSIGN(
          const Choice<MoeOp> yardstick,
          gate.select(group.spec, group.deployment,
                      Policy{.kind = PolicyKind::kRequire, .names = {"cpu_reference"}, .origin = "rehearsal"}));
      CADRE_ASSIGN(reference, prepare_layer(yardstick.admission, first));
    }
    Result<RehearsalReport> report = rehearse(*experts, reference != nullptr ? *reference : *experts, group.spec,
                                              group.deployment, *options_.device, *stream_, threads, options.rehearse);
    if (report.ok()) {
      group.rehearsal = *report;
      group.selection.candidates.front().measured_us = report->measured_us;
      group.selection.warnings.insert(group.selection.warnings.begin(), warnings.begin(), warnings.end());
      return std::pair(choice.admission, std::move(experts));
    }
    if (report.status().code() != Code::kInternal) return report.status();  // not about the kernel: memory, an adapter
    warnings.push_back("backend " + group.selection.chosen + ": " + report.status().message() +
                       "; the next admitted backend takes over");
    failed[group.selection.chosen] = report.status().message();
  }
}

Result<PreparedModel> Model::make_prepared(const MoeGate& gate, const SelectOptions& options, const AdapterPlan& plan) {
  if (options_.shapes_only || options_.weights == WeightOrigin::kNone) {
    return error(Code::kInternal, options_.dir, ": a plan has no weights that could run");
  }
  PreparedModel prepared;
  // Where this fails, copies may still be on their way into memory that goes.
  struct Wait {
    Stream& stream;
    ~Wait() { stream.wait(); }
  } const wait{*stream_};
  prepared.selections = requests(options.base, plan);
  prepared.plan = plan;
  std::int64_t extra = 0;
  for (LayerSelection& group : prepared.selections) {
    const std::string where = "MoE layer " + std::to_string(group.layers.front());
    // Foreseen before anything is packed.
    CADRE_ASSIGN(const Choice<MoeOp> foreseen,
                 gate.select(group.spec, group.deployment, options.policy).with_context(where));
    // Again, with a model in use: its packed copies stay until the exchange, and the source's pages are long dropped.
    const std::int64_t bytes = selections_.empty()
                                   ? beside_source(foreseen.admission, options_.weights)
                                   : foreseen.admission.backend().prepared_bytes(group.spec, group.deployment);
    extra += static_cast<std::int64_t>(group.layers.size()) * bytes;
  }
  if (options.memory_left >= 0 && extra > options.memory_left) {
    return error(Code::kOutOfMemory, "packed copies of the experts need ", extra >> 20, " MiB beyond the weights, and ",
                 options.memory_left >> 20,
                 " MiB are left; use a backend that packs nothing (require cpu_reference) or a ",
                 "machine with more memory");
  }
  for (LayerSelection& group : prepared.selections) {
    auto chosen = choose(gate, options, group);
    if (!chosen.ok()) {
      return std::move(chosen).status().with_context("MoE layer " + std::to_string(group.layers.front()));
    }
    const bool packs = chosen->first.backend().prepared_bytes(group.spec, group.deployment) > 0;
    prepared.packed_bytes +=
        static_cast<std::int64_t>(group.layers.size()) * beside_source(chosen->first, options_.weights);
    for (MoeLayer& layer : builder_->moe_layers) {
      if (std::find(group.layers.begin(), group.layers.end(), layer.layer) == group.layers.end()) continue;
      std::unique_ptr<Experts> experts = std::move(chosen->second);  // of the first layer; empty for the others
      if (experts == nullptr) {
        Result<std::unique_ptr<Experts>> made = prepare_layer(chosen->first, layer);
        if (!made.ok()) return std::move(made).status().with_context("MoE layer " + std::to_string(layer.layer));
        experts = std::move(*made);
      }
      if (packs) layer.weights->drop_pages();
      prepared.experts.emplace_back(layer.mixer, std::move(experts));
      if (options_.progress) {
        options_.progress(0.5 + 0.5 * static_cast<double>(prepared.experts.size()) /
                                    static_cast<double>(builder_->moe_layers.size()));
      }
    }
  }
  if (plan.slots > plan_.slots) {
    for (std::size_t i = 0; i < builder_->sites.size(); ++i) {
      CADRE_ASSIGN(LoraTable table, LoraTable::make(*options_.device, *stream_, plan.slots, 1));
      prepared.tables.push_back(std::move(table));
    }
  }
  return prepared;
}

void Model::exchange(PreparedModel& prepared) {
  if (backend_by_layer(selections_) != backend_by_layer(prepared.selections)) ++generation_;
  earlier_times_ = moe_times();
  for (MoeLayer& layer : builder_->moe_layers) layer.mixer->reset_time();
  for (auto& [mixer, experts] : prepared.experts) mixer->swap_experts(experts);
  for (std::size_t i = 0; i < prepared.tables.size(); ++i) {
    const DenseSite& site = builder_->sites[i];
    std::swap(site.linear != nullptr ? site.linear->lora() : site.embedding->lora(), prepared.tables[i]);
  }
  std::swap(selections_, prepared.selections);
  std::swap(packed_bytes_, prepared.packed_bytes);
  std::swap(plan_, prepared.plan);
}

Status Model::prepare(const MoeGate& gate, const SelectOptions& options, const AdapterPlan& plan) {
  CADRE_ASSIGN(PreparedModel prepared, make_prepared(gate, options, plan));
  exchange(prepared);
  return {};
}

Status Model::attach(Stream& stream, int slot, const Adapter& adapter) {
  if (slot < 0 || slot >= plan_.slots) {
    return error(Code::kLimitExceeded, "adapter '", adapter.name, "' needs a slot, and all ", plan_.slots,
                 " are taken (--max-loras)");
  }
  const auto attach_all = [&]() -> Status {
    for (const auto& [index, lora] : adapter.dense) {
      const DenseSite& site = builder_->sites[static_cast<std::size_t>(index)];
      CADRE_TRY(site.linear != nullptr ? site.linear->attach(*options_.device, stream, slot, lora)
                                       : site.embedding->attach(*options_.device, stream, slot, lora));
    }
    for (const MoeLayer& layer : builder_->moe_layers) {
      const auto it = adapter.experts.find(layer.target);
      if (it != adapter.experts.end()) CADRE_TRY(layer.mixer->experts()->attach(slot, it->second));
    }
    return {};
  };
  Status status = attach_all();
  if (!status.ok()) detach(stream, slot);
  return std::move(status).with_context("adapter '" + adapter.name + "'");
}

void Model::detach(Stream& stream, int slot) {
  for (const DenseSite& site : builder_->sites) {
    if (site.linear != nullptr) {
      site.linear->detach(*options_.device, stream, slot);
    } else {
      site.embedding->detach(*options_.device, stream, slot);
    }
  }
  for (const MoeLayer& layer : builder_->moe_layers) layer.mixer->experts()->detach(slot);
}

void Model::forward(const Exec& exec, const Ops& ops, const Batch& batch, const std::vector<LayerState>& states,
                    View logits) const {
  network_.forward({exec, ops, batch, states}, logits);
}

}  // namespace cadre
