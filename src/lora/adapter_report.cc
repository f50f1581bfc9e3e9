#include "lora/adapter_report.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "base/result.h"

namespace cadre {
namespace {

void add_dtype(std::string* names, DType dtype) {
  const std::string name(dtype_name(dtype));
  if (names->find(name) != std::string::npos) return;
  if (!names->empty()) *names += "+";
  *names += name;
}

void add_term(AdapterBinding* binding, const LowRank& term) {
  const bool first = binding->max_rank == 0;
  binding->min_rank = first ? term.rank() : std::min(binding->min_rank, term.rank());
  binding->max_rank = std::max(binding->max_rank, term.rank());
  binding->min_scale = first ? term.scale : std::min(binding->min_scale, term.scale);
  binding->max_scale = first ? term.scale : std::max(binding->max_scale, term.scale);
  add_dtype(&binding->dtype, term.a.dtype);
  add_dtype(&binding->dtype, term.b.dtype);
}

std::string bytes_text(std::int64_t bytes) {
  char text[64];
  if (bytes < 10'000) {
    std::snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(bytes));
  } else if (bytes < 10'000'000) {
    std::snprintf(text, sizeof text, "%.1f kB", double(bytes) / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f MB", double(bytes) / 1e6);
  }
  return text;
}

template <class T>
std::string range_text(T low, T high) {
  std::ostringstream out;
  out << low;
  if (high != low) out << " to " << high;
  return std::move(out).str();
}

// "model.layers.12.mlp.experts" -> {"model.layers.", 12, ".mlp.experts"}
struct LayerPath {
  std::string before, after;
  int layer = -1;
};
LayerPath split_layer(const std::string& module) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = module.find(kLayers);
  if (at == std::string::npos) return {module, "", -1};
  const std::size_t begin = at + kLayers.size();
  const std::size_t end = std::min(module.find('.', begin), module.size());
  if (end == begin || end - begin > 6) return {module, "", -1};
  for (std::size_t i = begin; i < end; ++i) {
    if (module[i] < '0' || module[i] > '9') return {module, "", -1};
  }
  return {module.substr(0, begin), module.substr(end), std::stoi(module.substr(begin, end - begin))};
}

// {0, 1, 2, 5} -> "{0-2,5}"
std::string layers_text(std::vector<int> layers) {
  std::sort(layers.begin(), layers.end());
  if (layers.size() == 1) return std::to_string(layers[0]);
  std::string text = "{";
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (i > 0) text += ",";
    text += std::to_string(layers[i]);
    if (last > i) text += "-" + std::to_string(layers[last]);
    i = last + 1;
  }
  return text + "}";
}

std::string binding_text(const AdapterBinding& b) {
  std::ostringstream out;
  if (!b.projection.empty()) out << " " << b.projection;
  out << ": " << b.kind;
  if (b.experts > 0) out << ", " << b.experts << " experts";
  if (b.max_rank > 0) {
    out << ", rank " << range_text(b.min_rank, b.max_rank) << ", scale " << range_text(b.min_scale, b.max_scale);
  }
  out << ", " << b.dtype;
  return std::move(out).str();
}

}  // namespace

void add_bindings(const AdapterTargets& targets, Adapter* adapter) {
  AdapterReport& report = adapter->report;
  for (const auto& [index, lora] : adapter->dense) {
    const DenseTarget& target = targets.dense[static_cast<std::size_t>(index)];
    if (lora.delta.a.defined()) {
      AdapterBinding& binding = report.bindings.emplace_back();
      binding.module = target.module;
      binding.kind = target.embedding ? "embedding" : "linear";
      add_term(&binding, lora.delta);
    }
    if (lora.replacement.defined()) {
      AdapterBinding& binding = report.bindings.emplace_back();
      binding.module = target.module;
      binding.kind = "replacement";
      add_dtype(&binding.dtype, lora.replacement.dtype);
    }
  }
  for (const auto& [index, lora] : adapter->experts) {
    const std::pair<const char*, const std::vector<LowRank>&> projections[] = {
        {"gate", lora.gate}, {"up", lora.up}, {"down", lora.down}};
    for (const auto& [name, terms] : projections) {
      if (terms.empty()) continue;
      AdapterBinding& binding = report.bindings.emplace_back();
      binding.module = targets.experts[static_cast<std::size_t>(index)].module;
      binding.projection = name;
      binding.kind = "experts";
      for (const LowRank& term : terms) {
        if (!term.a.defined()) continue;
        ++binding.experts;
        add_term(&binding, term);
      }
    }
  }
  for (const AdapterBinding& binding : report.bindings) report.max_rank = std::max(report.max_rank, binding.max_rank);
}

std::string report_text(const Adapter& adapter) {
  const AdapterReport& report = adapter.report;
  std::ostringstream out;
  out << "adapter '" << adapter.name << "': " << report.format << ", " << bytes_text(report.bytes) << ", largest rank "
      << report.max_rank << ", digest " << adapter.digest << "\n";
  struct Line {
    LayerPath path;
    std::string text;
    std::vector<int> layers;
  };
  std::vector<Line> lines;
  std::map<std::string, std::size_t> line_of;
  for (const AdapterBinding& binding : report.bindings) {
    const LayerPath path = split_layer(binding.module);
    const std::string text = binding_text(binding);
    const auto [at, added] = line_of.emplace(path.before + '\n' + path.after + '\n' + text, lines.size());
    if (added) lines.push_back({path, text, {}});
    if (path.layer >= 0) lines[at->second].layers.push_back(path.layer);
  }
  for (const Line& line : lines) {
    out << "  " << line.path.before << (line.layers.empty() ? std::string() : layers_text(line.layers))
        << line.path.after << line.text << "\n";
  }
  for (const std::string& note : report.notes) out << "  note: " << note << "\n";
  return std::move(out).str();
}

Json report_json(const Adapter& adapter) {
  const AdapterReport& report = adapter.report;
  std::vector<Json> bindings;
  for (const AdapterBinding& b : report.bindings) {
    std::vector<Json::Member> members = {{"module", b.module}, {"kind", b.kind}, {"dtype", b.dtype}};
    if (!b.projection.empty()) {
      members.emplace_back("projection", b.projection);
      members.emplace_back("experts", b.experts);
    }
    if (b.max_rank > 0) {
      members.emplace_back("min_rank", b.min_rank);
      members.emplace_back("max_rank", b.max_rank);
      members.emplace_back("min_scale", b.min_scale);
      members.emplace_back("max_scale", b.max_scale);
    }
    bindings.push_back(Json::object(std::move(members)));
  }
  return Json::object({{"name", adapter.name},
                       {"digest", adapter.digest},
                       {"format", report.format},
                       {"bytes", report.bytes},
                       {"max_rank", report.max_rank},
                       {"bindings", Json::array(std::move(bindings))},
                       {"notes", Json::array(report.notes)}});
}

}  // namespace cadre
