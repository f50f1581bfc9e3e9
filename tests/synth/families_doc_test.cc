// docs/families.md is made of the code: what each family builds from its published configs, and which goldens it is
// held to. CADRE_WRITE_FAMILIES_DOC=1 writes the file anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/result.h"
#include "io/checkpoint.h"
#include "model/families/family.h"
#include "model/golden.h"
#include "model/tensor_plan.h"
#include "support/status_matchers.h"
#include "synth/model_spec.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHead = R"(# Model families

What each `model_type` is built of. The tables are made of the code by a test (tests/synth/families_doc_test.cc), which
fails where they are no longer true: of what a family builds from the configs of its published checkpoints, which lie in
examples/specs, or, where there are none, from the small config that `cadre synth --family` takes.

- **Routing**: how router logits become experts and weights, as `cadre explain` names it.
- **Experts**: the activation, and whether a gate multiplies it.
- **Layers**: the mixers of the residual blocks; "dense" are feed-forward layers without experts.
- **Stored**: the experts' tensors as published. Families also read what transformers 4 and 5 make of them: one by one,
  or stacked.
- **Published in**: the type of the weights in the published files. FP8 (128 x 128 blocks with factors) and MXFP4 become
  BF16 as they are read.
- **Goldens**: small models of the family whose logits, with and without adapters, are those of Hugging Face transformers
  and PEFT, within 1e-4 (goldens/models and tests/data/extra/models).

)";

// Texts in the order in which they came, each once.
class Distinct {
 public:
  void add(const std::string& text) {
    if (!text.empty() && std::find(all_.begin(), all_.end(), text) == all_.end()) all_.push_back(text);
  }
  std::string joined(const char* by) const {
    std::string text;
    for (const std::string& one : all_) text += (text.empty() ? "" : by) + one;
    return text;
  }

 private:
  std::vector<std::string> all_;
};

// "self_attn.{q,k}_proj" and the like are for people; this is the plain rule: names below one parent share it.
std::string grouped(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Distinct>> parents;
  for (const std::string& name : names) {
    const std::size_t dot = name.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : name.substr(0, dot + 1);
    auto at = std::find_if(parents.begin(), parents.end(), [&](const auto& p) { return p.first == parent; });
    if (at == parents.end()) at = parents.insert(parents.end(), {parent, {}});
    at->second.add(dot == std::string::npos ? name : name.substr(dot + 1));
  }
  std::string text;
  for (const auto& [parent, children] : parents) {
    text += text.empty() ? "" : ", ";
    const std::string all = children.joined(parent.empty() ? "`, `" : ", ");
    text += "`" + parent + (all.find(',') == std::string::npos || parent.empty() ? all : "{" + all + "}") + "`";
  }
  return text;
}

// "model.layers.3.mlp.gate" -> "mlp.gate"; what lies outside of layers loses "model." only.
std::string within_layer(std::string_view name) {
  constexpr std::string_view kLayers = ".layers.";
  const std::size_t at = name.find(kLayers);
  if (at != std::string_view::npos) {
    const std::size_t dot = name.find('.', at + kLayers.size());
    return std::string(name.substr(dot + 1));
  }
  const std::size_t dot = name.find('.');
  return std::string(dot == std::string_view::npos ? name : name.substr(dot + 1));
}

std::string routing_text(const LayerSpec& spec) {
  const RoutingSpec& r = spec.routing;
  std::ostringstream out;
  out << to_string(r.kind);
  if (r.renormalize) out << ", renormalised";
  if (r.scale != 1) out << ", scale " << r.scale;
  if (r.selection_bias) out << ", selection bias";
  if (r.groups > 1) out << ", " << r.groups << " groups of which " << r.topk_groups;
  if (r.per_expert_scale) out << ", scale of each expert";
  if (spec.router_weight_on_input) out << ", weight on the input";
  return std::move(out).str();
}

std::string experts_text(const LayerSpec& spec) {
  const ActivationSpec& a = spec.activation;
  std::ostringstream out;
  out << to_string(a.kind) << (a.gated ? ", gated" : ", no gate");
  if (std::isfinite(a.limit)) out << ", clamped to " << a.limit;
  if (spec.latent > 0) out << ", on a latent vector";
  return std::move(out).str();
}

// How the plan stores the experts of one layer.
std::string stored_text(const TensorPlan& plan, const ExpertsTarget& experts) {
  const std::string layer = ".layers." + std::to_string(experts.layer) + ".";
  std::vector<std::string> stacked, single;
  bool transposed = false;
  for (const TensorInfo& tensor : plan.checkpoint->made_tensors()) {
    if (tensor.name.find(layer) == std::string::npos) continue;
    std::string name = within_layer(tensor.name);
    if (name.ends_with(".weight")) name.resize(name.size() - std::string_view(".weight").size());
    if (tensor.shape.size() >= 3 && tensor.shape[0] == experts.experts) {
      // Gate and up, or up, come first: [experts, rows, width].
      if (stacked.empty()) transposed = tensor.shape[2] != experts.width;
      stacked.push_back(name);
    } else if (tensor.name.find(experts.module + ".0.") == 0 && tensor.shape.size() == 2) {
      single.push_back(name.replace(name.find(".0."), 3, ".N."));
    }
  }
  if (!single.empty()) return grouped(single);
  return grouped(stacked) + (experts.interleaved ? ", gate and up interleaved" : "") +
         (transposed ? ", transposed" : "");
}

struct Row {
  Distinct specs, routing, experts, biases, shared, layers, stored, published, goldens;
  std::vector<std::string> dense;
  Distinct per_expert, stacked;
};

void take(const TensorPlan& plan, const ModelConfig& config, Row& row) {
  for (const auto& [layer, spec] : plan.moe_layers) {
    row.routing.add(routing_text(spec));
    row.experts.add(experts_text(spec));
    row.shared.add(spec.shared_experts == 0 ? "" : std::to_string(spec.shared_experts));
    if (spec.router_bias) row.biases.add("router");
    if (spec.expert_bias) row.biases.add("experts");
  }
  for (const DenseTarget& target : plan.targets.dense) {
    const std::string name = within_layer(target.module);
    if (std::find(row.dense.begin(), row.dense.end(), name) == row.dense.end()) row.dense.push_back(name);
    if (plan.checkpoint->find(target.module + ".bias") == nullptr) continue;
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last != "router") row.biases.add("`" + last + "`");
  }
  for (const std::string& mixer : plan.mixers) row.layers.add(mixer);
  row.published.add(config.quantisation.name());
  // All layers of a checkpoint are stored alike, and looking through them all takes a while.
  if (!plan.targets.experts.empty()) row.stored.add(stored_text(plan, plan.targets.experts.front()));
  for (const ExpertsTarget& target : plan.targets.experts) {
    const std::string module = within_layer(target.module);
    std::string single = "`" + module + ".N.{";
    for (const std::string& name : {target.gate_name, target.up_name, target.down_name}) {
      if (!name.empty()) single += (single.back() == '{' ? "" : ", ") + name;
    }
    row.per_expert.add(single + "}`");
    row.stacked.add("`" + module + ".{" + target.stacked_up_name + ", " + target.stacked_down_name + "}`");
  }
}

std::vector<fs::path> sorted(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status read_specs(std::map<std::string, Row>& rows) {
  for (const fs::path& path : sorted(fs::path(CADRE_SOURCE) / "examples" / "specs")) {
    if (path.extension() != ".json") continue;
    CADRE_ASSIGN(const Json json, read_config_file(path.string()));
    CADRE_ASSIGN(const ModelConfig config, parse_model_config(json));
    CADRE_ASSIGN(const TensorPlan plan, plan_tensors(config, path.string()));
    Row& row = rows[config.model_type];
    row.specs.add(path.stem().string());
    // The names are those of the weights that the codes stand for.
    ModelConfig plain = config;
    plain.quantisation = {};
    CADRE_ASSIGN(const TensorPlan whole, plan_tensors(plain, path.string()));
    take(whole, config, row);
  }
  for (const Family& family : families()) {
    Row& row = rows[std::string(family.model_type)];
    if (!row.specs.joined("").empty()) continue;
    CADRE_ASSIGN(const Json json, small_family_config(family.model_type));
    CADRE_ASSIGN(const ModelConfig config, parse_model_config(json));
    CADRE_ASSIGN(const TensorPlan plan, plan_tensors(config, "small"));
    take(plan, config, row);
  }
  return {};
}

Status read_goldens(std::map<std::string, Row>& rows) {
  for (const fs::path& models : {golden_dir("x").parent_path(), extra_dir() / "models"}) {
    for (const fs::path& folder : sorted(models)) {
      if (!fs::exists(folder / "config.json") || !fs::exists(folder / "golden.safetensors")) continue;
      CADRE_ASSIGN(const ModelConfig config, read_model_config(folder.string()));
      rows[config.model_type].goldens.add(folder.filename().string());
    }
  }
  return {};
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

Result<std::string> make_document() {
  std::map<std::string, Row> rows;
  CADRE_TRY(read_specs(rows));
  CADRE_TRY(read_goldens(rows));
  std::ostringstream out;
  out << kHead;
  out << "| Family | Published checkpoints | Routing | Experts | Shared experts | Biases | Layers | Stored | Published "
         "in "
         "| Goldens |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& [name, row] : rows) {
    out << "| `" << name << "` | " << or_dash(row.specs.joined(", ")) << " | " << row.routing.joined("; ") << " | "
        << row.experts.joined("; ") << " | " << or_dash(row.shared.joined(" or ")) << " | "
        << or_dash(row.biases.joined(", ")) << " | " << row.layers.joined(", ") << " | " << row.stored.joined("; ")
        << " | " << row.published.joined(", ") << " | " << row.goldens.joined(", ") << " |\n";
  }
  out << R"(
## Adapter targets

Modules that an adapter's `target_modules` may name, and the experts' parameters: one by one, or stacked, as PEFT's
`target_parameters` name them. Both forms of the experts are read for every family, whatever the checkpoint's form.
`cadre adapter check` says what a given adapter binds to.

| Family | Modules | Experts one by one | Experts stacked |
|---|---|---|---|
)";
  for (const auto& [name, row] : rows) {
    out << "| `" << name << "` | " << grouped(row.dense) << " | " << row.per_expert.joined(", ") << " | "
        << row.stacked.joined(", ") << " |\n";
  }
  return std::move(out).str();
}

TEST(FamiliesDocument, SaysWhatTheCodeBuilds) {
  const fs::path path = fs::path(CADRE_SOURCE) / "docs" / "families.md";
  Result<std::string> made = make_document();
  ASSERT_THAT(made, Succeeds());
  if (const char* write = std::getenv("CADRE_WRITE_FAMILIES_DOC"); write != nullptr && *write == '1') {
    std::ofstream(path) << *made;
  }
  std::ostringstream there;
  there << std::ifstream(path).rdbuf();
  EXPECT_EQ(there.str(), *made) << "run this test with CADRE_WRITE_FAMILIES_DOC=1, read the difference and commit it";
}

TEST(FamiliesDocument, EveryFamilyHasAGolden) {
  std::map<std::string, Row> rows;
  ASSERT_THAT(read_goldens(rows), Succeeds());
  for (const Family& family : families()) {
    EXPECT_FALSE(rows[std::string(family.model_type)].goldens.joined("").empty()) << family.model_type;
  }
}

}  // namespace
}  // namespace cadre::test
