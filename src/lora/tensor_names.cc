#include "lora/tensor_names.h"

#include <algorithm>
#include <vector>

namespace cadre {
namespace {

bool drop_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

std::string_view without_last(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

struct Marker {
  std::string_view name;
  TensorPart part;
};
constexpr Marker kMarkers[] = {
    {"lora_A", TensorPart::kLoraA},
    {"lora_B", TensorPart::kLoraB},
    {"lora_embedding_A", TensorPart::kEmbeddingA},
    {"lora_embedding_B", TensorPart::kEmbeddingB},
    {"modules_to_save", TensorPart::kSavedWeight},
    {"lora_magnitude_vector", TensorPart::kMagnitude},
};

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    parts.push_back(path.substr(at, dot - at));
    at = dot + 1;
  }
  return parts;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The path with every part `from` made `to`; nothing if there is none.
std::optional<std::string> replace_parts(std::string_view path, std::string_view from, std::string_view to) {
  std::string out;
  bool any = false;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, dot - at);
    if (at > 0) out += '.';
    out += part == from ? to : part;
    any |= part == from;
    at = dot + 1;
  }
  if (!any) return std::nullopt;
  return out;
}

}  // namespace

std::string_view last_component(std::string_view path) { return path.substr(path.rfind('.') + 1); }

TensorName parse_tensor_name(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::string_view rest = name;
  if (drop_end(rest, ".bias")) return {rest, TensorPart::kBias};
  const bool weight = drop_end(rest, ".weight");
  // "<module>.<marker>" or "<module>.<marker>.<adapter>".
  for (const std::string_view path : {rest, without_last(rest)}) {
    const std::string_view marker = last_component(path), module = without_last(path);
    for (const Marker& known : kMarkers) {
      if (marker != known.name || module.empty()) continue;
      const bool plain = known.part == TensorPart::kEmbeddingA || known.part == TensorPart::kEmbeddingB;
      const bool pair = known.part == TensorPart::kLoraA || known.part == TensorPart::kLoraB;
      const bool bare = pair && !weight && path.size() == rest.size();  // "<module>.lora_A": packed experts say so
      // `.weight` is there, or must not be.
      if (known.part != TensorPart::kMagnitude && weight == plain && !bare) continue;
      return {module, known.part};
    }
  }
  if (weight) {
    if (drop_end(rest, ".base_layer")) return {rest, TensorPart::kBaseLayerWeight};
    return {rest, TensorPart::kWeight};
  }
  return {name, TensorPart::kOther};
}

ModuleIndex::ModuleIndex(const AdapterTargets& targets) : targets_(targets) {
  for (std::size_t i = 0; i < targets.dense.size(); ++i) dense_.emplace(targets.dense[i].module, static_cast<int>(i));
  for (std::size_t i = 0; i < targets.experts.size(); ++i) {
    experts_.emplace(targets.experts[i].module, static_cast<int>(i));
  }
}

std::optional<ModuleRef> ModuleIndex::find_exact(std::string_view path) const {
  if (const auto at = dense_.find(path); at != dense_.end()) return ModuleRef{at->second, -1, {}};
  std::string_view module = path;
  for (int parts = 0; parts <= 2 && !module.empty(); ++parts) {
    if (const auto at = experts_.find(module); at != experts_.end()) {
      return ModuleRef{-1, at->second, std::string(parts == 0 ? std::string_view() : path.substr(module.size() + 1))};
    }
    module = without_last(module);
  }
  return std::nullopt;
}

std::optional<ModuleRef> ModuleIndex::find(std::string_view path) const {
  if (const auto found = find_exact(path)) return found;
  const auto with_parts = [&](std::string_view variant) -> std::optional<ModuleRef> {
    for (const auto& [file, model] : targets_.part_aliases) {
      if (const auto other = replace_parts(variant, file, model)) {
        if (const auto found = find_exact(*other)) return found;
      }
      if (const auto other = replace_parts(variant, model, file)) {
        if (const auto found = find_exact(*other)) return found;
      }
    }
    return std::nullopt;
  };
  if (const auto found = with_parts(path)) return found;
  const auto with_prefix = [&](const std::string& from, const std::string& to) -> std::optional<ModuleRef> {
    if (!path.starts_with(from)) return std::nullopt;
    const std::string other = to + std::string(path.substr(from.size()));
    if (const auto found = find_exact(other)) return found;
    return with_parts(other);
  };
  for (const auto& [file, model] : targets_.prefix_aliases) {
    if (const auto found = with_prefix(file, model)) return found;
    if (const auto found = with_prefix(model, file)) return found;
  }
  return std::nullopt;
}

std::string ModuleIndex::hint(std::string_view path) const {
  const std::vector<std::string_view> want = components(path);
  for (std::size_t i = 0; i + 1 < want.size(); ++i) {
    if (want[i] != "layers" || !is_number(want[i + 1])) continue;
    if (want[i + 1].size() > 6 || std::stoi(std::string(want[i + 1])) >= targets_.layers) {
      return "the model has " + std::to_string(targets_.layers) + " layers: adapter of another model?";
    }
  }
  // The most shared parts, counted from both ends; the last must be among them.
  std::string_view best;
  std::size_t best_shared = 0;
  const auto consider = [&](const std::string& module) {
    const std::vector<std::string_view> have = components(module);
    const std::size_t shorter = std::min(have.size(), want.size());
    std::size_t end = 0, start = 0;
    while (end < shorter && have[have.size() - 1 - end] == want[want.size() - 1 - end]) ++end;
    while (start + end < shorter && have[start] == want[start]) ++start;
    if (end > 0 && start + end > best_shared) {
      best_shared = start + end;
      best = module;
    }
  };
  for (const DenseTarget& target : targets_.dense) consider(target.module);
  for (const ExpertsTarget& target : targets_.experts) consider(target.module);
  if (best_shared < 2) return "the model has no such module: adapter of another model?";
  return "the nearest module of the model is '" + std::string(best) + "'";
}

}  // namespace cadre
