#include "moe/grid.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "moe/experts/cpu_reference/record.h"
#include "moe/experts/cpu_vector/record.h"
#include "moe/presets.h"
#include "moe/record_fields.h"

namespace cadre::test {
namespace {

using EP = ExpertParallelKind;

// splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  bool percent(int p) { return below(100) < p; }
  template <class T, std::size_t N>
  T of(const T (&values)[N]) {
    return values[below(static_cast<int>(N))];
  }
  template <class E>
  E any() {
    return static_cast<E>(below(kCountOf<E>));
  }

 private:
  std::uint64_t state_;
};

void set_parallel(Deployment& d, EP kind, int ranks) {
  d.expert_parallel_kind = kind;
  d.expert_parallel = kind == EP::kNone ? 1 : ranks;
  d.format = dispatched_format(kind);
}

void keep_valid(LayerSpec& s) {
  s.top_k = std::min(s.top_k, s.experts);
  if (s.experts % s.routing.groups != 0) s.routing.groups = 1;
  const int in_group = s.experts / s.routing.groups;
  s.routing.topk_groups =
      std::max(std::min(s.routing.topk_groups, s.routing.groups), (s.top_k + in_group - 1) / in_group);
}

// clang-format off: a table, one line a dimension.
// One dimension changed. Every dimension of LayerSpec and Deployment that a record speaks of has its line.
constexpr int kSpecChanges = 20, kDeploymentChanges = 17;
void change_spec(LayerSpec& s, int which, Random& r) {
  switch (which) {
    case 0: s.experts = r.of({1, 2, 16, 60, 128, 512, 992, 993, 1024, 2048, 2049, 4096}); break;
    case 1: s.top_k = r.of({1, 2, 4, 8, 10, 22, 32, 33, 64}); break;
    case 2: s.hidden = r.of<std::int64_t>({32, 64, 1000, 1024, 1536, 2048, 2688, 2816, 2880, 3584, 4096, 5120, 7168, 8192}); break;
    case 3: s.intermediate = r.of<std::int64_t>({32, 100, 192, 352, 464, 512, 672, 704, 768, 1024, 1408, 1536, 1856, 2048, 2880, 4096, 14336}); break;
    case 4: s.latent = r.of<std::int64_t>({0, 0, 500, 1024, 2048}); break;
    case 5: s.activation.kind = r.any<Activation>(); break;
    case 6: s.activation.gated = !s.activation.gated; break;
    case 7: s.activation.limit = r.of({7.0f, 10.0f, std::numeric_limits<float>::infinity()}); break;
    case 8: s.activation.alpha = r.of({1.0f, 1.702f}); break;
    case 9: s.activation.beta = r.of({0.0f, 1.0f}); break;
    case 10: s.routing.kind = r.any<Routing>(); break;
    case 11: s.routing.renormalize = !s.routing.renormalize; break;
    case 12: s.routing.selection_bias = !s.routing.selection_bias; break;
    case 13: s.routing.per_expert_scale = !s.routing.per_expert_scale; break;
    case 14: s.routing.groups = r.of({1, 2, 4, 8}); break;
    case 15: s.routing.logits = r.any<WeightType>(); break;
    case 16:
      s.weights.type = r.any<WeightType>();
      s.weights.scheme = s.weights.type == WeightType::kMxfp4 || r.percent(15) ? WeightScheme::kBlockScaled : WeightScheme::kPlain;
      break;
    case 17: s.expert_bias = !s.expert_bias; break;
    case 18: (r.percent(50) ? s.router_bias : s.interleaved_gate_up) ^= true; break;
    case 19: s.router_weight_on_input = !s.router_weight_on_input; break;
    default: break;
  }
}

void change_deployment(Deployment& d, int which, Random& r) {
  switch (which) {
    case 0: d.activations_on = r.any<DeviceKind>(); break;
    case 1: d.tensor_parallel = r.of({2, 3, 4, 8, 16}); break;
    case 2: set_parallel(d, r.any<EP>(), r.of({1, 2, 4, 8, 64})); break;
    case 3: d.data_parallel = r.of({2, 8}); break;
    case 4: d.sequence_parallel = true; break;
    case 5: d.redundant_experts = r.of({8, 32}); break;
    case 6: d.rebalance_experts = true; break;
    case 7: d.activation_type = r.any<WeightType>(); break;
    case 8: if (d.format == ActivationFormat::kStandard) d.format = ActivationFormat::kBatched; break;
    case 9: d.need_repeatable = !d.need_repeatable; break;
    case 10: d.need_adapter_isolation = !d.need_adapter_isolation; break;
    case 11: d.need_batch_invariance = true; break;
    case 12: d.graph_capture = true; break;
    case 13: d.workspace_limit = std::int64_t{1} << r.of({10, 20, 24, 27, 30, 34}); break;
    case 14: d.max_tokens = r.of({1, 64, 2048, 16384}); break;
    case 15: d.token_mix = {{r.of({1, 8, 64}), 0.7}, {2048, 0.3}}; break;
    case 16: d.device.described = false; break;
    default: break;
  }
}

// clang-format on

AdapterDemand random_demand(bool gated, Random& r) {
  AdapterDemand a;
  a.max_adapters = r.of({1, 4, 4, 8, 9, 64});
  a.max_rank = r.of({1, 4, 8, 16, 16, 32, 64, 65, 128, 129, 256, 512, 513});
  a.projections = static_cast<std::uint8_t>(r.percent(60) ? kGate | kUp | kDown : r.below(8));
  if (!gated && r.percent(90)) a.projections &= kUp | kDown;
  a.layouts = static_cast<std::uint8_t>(r.percent(60) ? kPerExpert : 1 + r.below(7));
  a.fully_sharded = r.percent(5);
  return a;
}

// ---- edges --------------------------------------------------------------------------------------------------------

// A point with adapters that the record admits, from which its limits are walked: the first published layer that it
// admits, otherwise the first with sizes that suit every kernel.
Point admitted_by(const Recorded& r) {
  for (const bool round_sizes : {false, true}) {
    for (const NamedDevice& device : preset_devices()) {
      for (const NamedSpec& preset : preset_specs()) {
        for (const EP kind : {EP::kNone, EP::kAllToAll, EP::kDeepEpLowLatency}) {
          Point p{preset.spec, on(device.name)};
          p.spec.routing.groups = p.spec.routing.topk_groups = 1;
          if (round_sizes) p.spec.hidden = p.spec.intermediate = 4096;
          p.deployment.need_adapter_isolation = false;
          p.deployment.need_repeatable = false;
          set_parallel(p.deployment, kind, 2);
          if (r.record->adapters) {
            p.deployment = with_lora(p.deployment, 1, 1);
            p.deployment.adapters.projections = kDown;
          }
          const std::vector<Refusal> refusals = r.backend->check(p.spec, p.deployment);
          if (std::all_of(refusals.begin(), refusals.end(), [](const Refusal& x) {
                return x.code == Reason::kDeviceAbsent || x.code == Reason::kNotInThisBuild;
              })) {
            return p;
          }
        }
      }
    }
  }
  std::abort();  // a record that admits nothing on any known machine
}

struct Rule {
  Reason reason;
  std::int64_t domain;  // largest value that `validate` lets pass
  void (*set)(Point&, std::int64_t);
};

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> table = {
      {"max_experts",
       {Reason::kTooManyExperts, kMaxLayerExperts,
        [](Point& p, std::int64_t v) {
          const bool spread = p.deployment.expert_parallel > 1;
          p.spec.experts = static_cast<int>(spread ? std::min<std::int64_t>(2 * v, kMaxLayerExperts) : v);
          keep_valid(p.spec);
        }}},
      {"max_top_k",
       {Reason::kTopK, kMaxLayerTopK,
        [](Point& p, std::int64_t v) {
          p.spec.experts = std::max<int>(p.spec.experts, static_cast<int>(v));
          p.spec.top_k = static_cast<int>(v);
        }}},
      {"max_width",
       {Reason::kHiddenSize, kMaxLayerWidth,
        [](Point& p, std::int64_t v) {
          p.spec.latent = 0;
          p.spec.hidden = v;
        }}},
      {"width_multiple",
       {Reason::kHiddenSize, kMaxLayerWidth,
        [](Point& p, std::int64_t v) {
          p.spec.latent = 0;
          p.spec.hidden = v;
        }}},
      {"intermediate_multiple",
       {Reason::kIntermediateSize, kMaxLayerWidth,
        [](Point& p, std::int64_t v) {
          p.deployment.tensor_parallel = 1;
          p.spec.intermediate = v;
        }}},
      {"max_rank",
       {Reason::kAdapterRank, 1 << 16,
        [](Point& p, std::int64_t v) { p.deployment.adapters.max_rank = static_cast<int>(v); }}},
      {"max_adapters",
       {Reason::kAdapterCount, 1 << 16,
        [](Point& p, std::int64_t v) { p.deployment.adapters.max_adapters = static_cast<int>(v); }}},
      {"max_tensor_parallel",
       {Reason::kTensorParallel, kMaxRanks,
        [](Point& p, std::int64_t v) {
          p.deployment.tensor_parallel = static_cast<int>(v);
          p.spec.intermediate = std::min<std::int64_t>(128 * v, kMaxLayerWidth);
        }}},
      {"max_data_parallel",
       {Reason::kDataParallel, kMaxRanks,
        [](Point& p, std::int64_t v) { p.deployment.data_parallel = static_cast<int>(v); }}},
  };
  return table;
}

}  // namespace

const std::vector<Recorded>& built_in_records() {
  static const std::vector<Recorded> list = [] {
    const std::map<std::string, const MoeRecord*> records = {{"cpu_reference", &kCpuReferenceRecord},
                                                             {"cpu_vector", &kCpuVectorRecord}};
    std::vector<Recorded> out;
    for (const MoeBackend* backend : built_in_backends()) out.push_back({backend, records.at(backend->name())});
    return out;
  }();
  return list;
}

const std::vector<Recorded>& all_records() {
  static const std::vector<Recorded> list = [] {
    std::vector<Recorded> out;
    for (const ModelledBackend* backend : catalogue()) out.push_back({backend, &backend->record()});
    out.insert(out.end(), built_in_records().begin(), built_in_records().end());
    return out;
  }();
  return list;
}

std::vector<Edge> edges_of(const Recorded& r) {
  const Point base = admitted_by(r);
  std::vector<Edge> edges;
  const auto add = [&](const char* field, std::int64_t value, bool admitted) {
    const Rule& rule = rules().at(field);
    Point p = base;
    rule.set(p, value);
    edges.push_back({field, p, admitted, rule.reason});
  };
  visit_fields(*r.record, [&](const char* name, const auto& value, auto kind) {
    using Kind = decltype(kind);
    const std::string field = name;
    if ((field == "max_rank" || field == "max_adapters") && !r.record->adapters) return;
    if constexpr (std::is_same_v<Kind, Limit>) {
      std::int64_t domain = rules().at(field).domain;
      if (field == "max_top_k") domain = std::min(domain, r.record->max_experts);
      add(name, std::min<std::int64_t>(value, domain), true);
      if (value < domain) add(name, value + 1, false);
    } else if constexpr (std::is_same_v<Kind, Multiple>) {
      const bool pads = field == "intermediate_multiple" && r.record->pads_intermediate;
      add(name, 3 * value, true);
      if (value > 1) add(name, 3 * value + 1, pads);
      if (value > 2) add(name, 3 * value + value / 2, pads);
    } else if (field == "workspace" && r.record->workspace != nullptr) {
      Point p = base;
      const std::int64_t bytes = r.record->workspace(p.spec, p.deployment);
      p.deployment.workspace_limit = bytes;
      edges.push_back({field, p, true, Reason::kWorkspace});
      p.deployment.workspace_limit = bytes - 1;
      edges.push_back({field, p, false, Reason::kWorkspace});
    }
  });
  return edges;
}

Point random_point(int index) {
  Random r(static_cast<std::uint64_t>(index) + 1);
  const auto& specs = preset_specs();
  const auto& devices = preset_devices();
  Point p;
  p.spec = specs[static_cast<std::size_t>(r.below(static_cast<int>(specs.size())))].spec;
  // The first five are CPUs: half of the points.
  const int device = r.percent(50) ? r.below(5) : r.below(static_cast<int>(devices.size()));
  p.deployment = on(devices[static_cast<std::size_t>(device)].name);
  if (r.percent(40)) p.deployment.tensor_parallel = r.of({2, 4, 8});
  if (r.percent(25))
    set_parallel(p.deployment, r.percent(60) ? EP::kAllGatherReduceScatter : r.any<EP>(), r.of({2, 4, 8}));
  if (r.percent(40)) p.deployment.adapters = random_demand(p.spec.activation.gated, r);
  // Most layers are a published one as it is, or nearly.
  const int many = r.below(100);
  const int changes = many < 40 ? 0 : many < 70 ? 1 : many < 85 ? 2 : many < 95 ? 3 : 6;
  for (int i = 0; i < changes; ++i) {
    const int which = r.below(kSpecChanges + kDeploymentChanges);
    which < kSpecChanges ? change_spec(p.spec, which, r) : change_deployment(p.deployment, which - kSpecChanges, r);
  }
  keep_valid(p.spec);
  return p;
}

void for_each_point(const std::function<void(const Point&)>& f) {
  for (const Recorded& r : all_records()) {
    for (const Edge& edge : edges_of(r)) f(edge.point);
  }
  for (int i = 0; i < kRandomPoints; ++i) f(random_point(i));
}

std::vector<Reason> codes_of(const std::vector<Refusal>& refusals) {
  std::vector<Reason> codes;
  codes.reserve(refusals.size());
  for (const Refusal& refusal : refusals) codes.push_back(refusal.code);
  return codes;
}

}  // namespace cadre::test
