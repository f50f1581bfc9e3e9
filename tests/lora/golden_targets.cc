#include "lora/golden_targets.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "io/json.h"
#include "io/safetensors.h"
#include "lora/tensor_names.h"

namespace cadre {
namespace {

// "a.b.experts.3.up_proj" -> {"a.b.experts", "3", "up_proj"}, or nothing.
bool split_expert(const std::string& module, std::string* experts, int* expert, std::string* projection) {
  const std::size_t last = module.rfind('.');
  if (last == std::string::npos || last == 0) return false;
  const std::size_t dot = module.rfind('.', last - 1);
  if (dot == std::string::npos || !module.substr(0, dot).ends_with(".experts")) return false;
  *experts = module.substr(0, dot);
  *expert = std::stoi(module.substr(dot + 1, last - dot - 1));
  *projection = module.substr(last + 1);
  return true;
}

}  // namespace

AdapterTargets golden_targets(const std::string& model) {
  const std::string folder = std::string(CADRE_GOLDENS) + "/models/" + model;
  const auto config = Json::parse_file(folder + "/config.json");
  const auto file = SafetensorsFile::open(folder + "/model.safetensors");
  AdapterTargets targets;
  if (!config.ok() || !file.ok()) {
    ADD_FAILURE() << config.status().message() << file.status().message();
    return targets;
  }
  targets.model_type = config->get_string("model_type").value();
  std::map<std::string, ExpertsTarget> experts;
  std::map<std::string, std::set<std::string>> projections;
  bool head = false;
  DenseTarget embedding;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    if (const std::size_t at = tensor.name.find("layers."); at != std::string::npos) {
      targets.layers = std::max(targets.layers, std::stoi(tensor.name.substr(at + 7)) + 1);
    }
    if (!tensor.name.ends_with(".weight") || tensor.shape.size() != 2) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
    std::string path, projection;
    int expert = 0;
    if (split_expert(module, &path, &expert, &projection)) {
      ExpertsTarget& target = experts[path];
      target.module = path;
      target.layer = std::stoi(path.substr(path.find("layers.") + 7));
      target.experts = std::max(target.experts, expert + 1);
      projections[path].insert(projection);
      if (projection == "up_proj" || projection == "w3") {
        target.intermediate = tensor.shape[0];
        target.width = tensor.shape[1];
      }
      continue;
    }
    DenseTarget target;
    target.module = module;
    target.out = tensor.shape[0];
    target.in = tensor.shape[1];
    target.embedding = module.ends_with("embed_tokens") || module.ends_with("embeddings");
    if (target.embedding) {
      std::swap(target.in, target.out);
      embedding = target;
    }
    head |= module == "lm_head";
    targets.dense.push_back(target);
  }
  if (!head) {
    DenseTarget target;
    target.module = "lm_head";
    target.in = embedding.out;
    target.out = embedding.in;
    target.tied = true;
    targets.dense.push_back(target);
  }
  for (auto& [path, target] : experts) {
    const std::set<std::string>& names = projections[path];
    target.gated = names.size() == 3;
    if (names.contains("w1")) {
      target.gate_name = "w1", target.up_name = "w3", target.down_name = "w2";
    } else {
      target.gate_name = target.gated ? "gate_proj" : "", target.up_name = "up_proj", target.down_name = "down_proj";
    }
    target.stacked_up_name = target.gated ? "gate_up_proj" : "up_proj";
    target.stacked_down_name = "down_proj";
    targets.experts.push_back(target);
  }
  targets.prefix_aliases = {{"model.", "backbone."}};
  targets.part_aliases = {{"mlp", "block_sparse_moe"}};
  return targets;
}

AdapterTargets small_targets(int experts, std::int64_t width, std::int64_t intermediate, bool gated) {
  AdapterTargets targets;
  targets.layers = 1;
  targets.dense = {{"model.layers.0.self_attn.q_proj", 8, 8},
                   {"model.layers.0.mlp.gate", 8, experts},
                   {"model.embed_tokens", 16, 8, true},
                   {"lm_head", 8, 16}};
  ExpertsTarget target;
  target.module = "model.layers.0.mlp.experts";
  target.experts = experts;
  target.width = width;
  target.intermediate = intermediate;
  target.gated = gated;
  target.gate_name = gated ? "gate_proj" : "";
  target.up_name = "up_proj";
  target.down_name = "down_proj";
  target.stacked_up_name = gated ? "gate_up_proj" : "up_proj";
  target.stacked_down_name = "down_proj";
  targets.experts = {target};
  return targets;
}

}  // namespace cadre
