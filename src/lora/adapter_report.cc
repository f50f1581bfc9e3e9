#include "lora/adapter_report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <tuple>

#include "base/result.h"
#include "lora/adapter_reader.h"
#include "lora/adapter_rounding.h"

namespace cadre {
namespace {

// What one binding stands for: the terms, or the replacement.
struct Bound {
  int dense = -1, experts = -1;  // as in Adapter
  const char* projection = "";
  std::span<const LowRank> terms;
  const View* replacement = nullptr;
};

// In the order of AdapterReport::bindings.
std::vector<Bound> all_bound(const Adapter& adapter) {
  std::vector<Bound> out;
  for (const auto& [index, lora] : adapter.dense) {
    if (lora.delta.a.defined()) out.push_back({.dense = index, .terms = {&lora.delta, 1}});
    if (lora.replacement.defined()) out.push_back({.dense = index, .replacement = &lora.replacement});
  }
  for (const auto& [index, lora] : adapter.experts) {
    const std::pair<const char*, const std::vector<LowRank>&> projections[] = {
        {"gate", lora.gate}, {"up", lora.up}, {"down", lora.down}};
    for (const auto& [name, terms] : projections) {
      if (!terms.empty()) out.push_back({.experts = index, .projection = name, .terms = terms});
    }
  }
  return out;
}

// Dense copies of the views of one layer's experts, or of one module: what two terms share counts once.
class PackedBytes {
 public:
  std::int64_t add(const View& view) {
    return seen_.emplace(view.data, view.shape, view.stride).second ? view.bytes() : 0;
  }
  std::int64_t add(const LowRank& term) { return term.rank() == 0 ? 0 : add(term.a) + add(term.b); }

 private:
  using Dims = std::array<std::int64_t, View::kMaxRank>;
  std::set<std::tuple<const void*, Dims, Dims>> seen_;
};

struct Packed {
  std::int64_t bytes = 0;
  std::map<int, std::int64_t> by_layer;  // -1: outside of the layers
  std::map<int, std::int64_t> by_rank;   // 0: replacements
};

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

std::vector<Rounding> all_roundings(const Adapter& adapter) {
  std::vector<Rounding> out;
  for (const Bound& bound : all_bound(adapter)) {
    out.push_back(bound.replacement != nullptr ? Rounding{bf16_rounding(*bound.replacement), 0}
                                               : bf16_rounding(bound.terms));
  }
  return out;
}

Packed packed_of(const Adapter& adapter) {
  Packed packed;
  for (const AdapterBinding& binding : adapter.report.bindings) {
    packed.bytes += binding.packed_bytes;
    packed.by_layer[split_layer(binding.module).layer] += binding.packed_bytes;
  }
  PackedBytes once;
  for (const Bound& bound : all_bound(adapter)) {
    if (bound.replacement != nullptr) packed.by_rank[0] += once.add(*bound.replacement);
    for (const LowRank& term : bound.terms) {
      if (term.rank() > 0) packed.by_rank[term.rank()] += once.add(term);
    }
  }
  return packed;
}

std::string share_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g %%", share * 100);
  return text;
}

// Two lines: by layer, where those that take the same share a part, and by rank.
std::string memory_text(const Packed& packed) {
  std::map<std::int64_t, std::vector<int>> alike;
  for (const auto& [layer, bytes] : packed.by_layer) {
    if (layer >= 0) alike[bytes].push_back(layer);
  }
  std::ostringstream out;
  out << "  memory: " << bytes_text(packed.bytes) << " packed";
  for (const auto& [bytes, layers] : alike) {
    std::string which = layers_text(layers);
    if (which.front() == '{') which = which.substr(1, which.size() - 2);
    out << "; " << (layers.size() == 1 ? "layer " : "layers ") << which << " " << bytes_text(bytes)
        << (layers.size() == 1 ? "" : " each");
  }
  if (const auto other = packed.by_layer.find(-1); other != packed.by_layer.end()) {
    out << "; outside of the layers " << bytes_text(other->second);
  }
  out << "\n  memory by rank:";
  const char* comma = " ";
  for (const auto& [rank, bytes] : packed.by_rank) {
    out << comma << (rank == 0 ? std::string("whole weights") : "rank " + std::to_string(rank)) << " "
        << bytes_text(bytes);
    comma = ", ";
  }
  out << "\n";
  return std::move(out).str();
}

std::string rounding_text(const std::vector<Rounding>& roundings) {
  double largest = 0;
  for (const Rounding& rounding : roundings) largest = std::max(largest, rounding.largest());
  if (largest == 0) return "none; every number is exact in bf16";
  return "none here, the file's numbers are kept; a backend with bf16 adapters would change each by at most " +
         share_text(largest) + " of itself" + (largest > kBf16Rounding ? ", since some are below bf16's range" : "");
}

}  // namespace

void add_bindings(const AdapterTargets& targets, Adapter* adapter) {
  AdapterReport& report = adapter->report;
  PackedBytes packed;
  for (const Bound& bound : all_bound(*adapter)) {
    AdapterBinding& binding = report.bindings.emplace_back();
    if (bound.dense >= 0) {
      const DenseTarget& target = targets.dense[static_cast<std::size_t>(bound.dense)];
      binding.module = target.module;
      binding.kind = bound.replacement != nullptr ? "replacement" : target.embedding ? "embedding" : "linear";
    } else {
      binding.module = targets.experts[static_cast<std::size_t>(bound.experts)].module;
      binding.projection = bound.projection;
      binding.kind = "experts";
    }
    if (bound.replacement != nullptr) {
      add_dtype(&binding.dtype, bound.replacement->dtype);
      binding.packed_bytes = packed.add(*bound.replacement);
    }
    for (const LowRank& term : bound.terms) {
      if (!term.a.defined()) continue;
      binding.experts += bound.experts >= 0 ? 1 : 0;
      add_term(&binding, term);
      binding.packed_bytes += packed.add(term);
    }
    report.max_rank = std::max(report.max_rank, binding.max_rank);
  }
}

std::string report_text(const Adapter& adapter) {
  const AdapterReport& report = adapter.report;
  const std::vector<Rounding> roundings = all_roundings(adapter);
  std::ostringstream out;
  out << "adapter '" << adapter.name << "': " << report.format << ", " << bytes_text(report.bytes) << ", largest rank "
      << report.max_rank << ", digest " << adapter.digest << "\n";
  struct Line {
    LayerPath path;
    std::string text;
    std::vector<int> layers;
    Rounding rounding;  // the largest of the layers
  };
  std::vector<Line> lines;
  std::map<std::string, std::size_t> line_of;
  for (std::size_t i = 0; i < report.bindings.size(); ++i) {
    const AdapterBinding& binding = report.bindings[i];
    const LayerPath path = split_layer(binding.module);
    const std::string text = binding_text(binding);
    const auto [at, added] = line_of.emplace(path.before + '\n' + path.after + '\n' + text, lines.size());
    if (added) lines.push_back({path, text, {}, {}});
    Line& line = lines[at->second];
    if (path.layer >= 0) line.layers.push_back(path.layer);
    line.rounding.a = std::max(line.rounding.a, roundings[i].a);
    line.rounding.b = std::max(line.rounding.b, roundings[i].b);
  }
  for (const Line& line : lines) {
    out << "  " << line.path.before << (line.layers.empty() ? std::string() : layers_text(line.layers))
        << line.path.after << line.text;
    // "lm_head: replacement" has one matrix, the others A and B.
    if (line.text.starts_with(": replacement")) {
      if (line.rounding.a > 0) out << ", in bf16 " << share_text(line.rounding.a) << " off";
    } else if (line.rounding.largest() > 0) {
      out << ", in bf16 A " << share_text(line.rounding.a) << " and B " << share_text(line.rounding.b) << " off";
    }
    out << "\n";
  }
  out << memory_text(packed_of(adapter)) << "  rounding: " << rounding_text(roundings) << "\n";
  for (const std::string& note : report.notes) out << "  note: " << note << "\n";
  return std::move(out).str();
}

Json report_json(const Adapter& adapter) {
  const AdapterReport& report = adapter.report;
  const std::vector<Rounding> roundings = all_roundings(adapter);
  std::vector<Json> bindings;
  double largest = 0;
  for (std::size_t i = 0; i < report.bindings.size(); ++i) {
    const AdapterBinding& b = report.bindings[i];
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
    members.emplace_back("packed_bytes", b.packed_bytes);
    const Rounding& rounding = roundings[i];
    largest = std::max(largest, rounding.largest());
    members.emplace_back("bf16_rounding", b.kind == "replacement"
                                              ? Json::object({{"weight", rounding.a}})
                                              : Json::object({{"a", rounding.a}, {"b", rounding.b}}));
    bindings.push_back(Json::object(std::move(members)));
  }
  const Packed packed = packed_of(adapter);
  std::vector<Json> layers, ranks;
  for (const auto& [layer, bytes] : packed.by_layer) {
    layers.push_back(Json::object({{"layer", layer < 0 ? Json() : Json(layer)}, {"bytes", bytes}}));
  }
  for (const auto& [rank, bytes] : packed.by_rank) {
    ranks.push_back(Json::object({{"rank", rank == 0 ? Json() : Json(rank)}, {"bytes", bytes}}));
  }
  return Json::object({{"name", adapter.name},
                       {"digest", adapter.digest},
                       {"format", report.format},
                       {"bytes", report.bytes},
                       {"packed", Json::object({{"bytes", packed.bytes},
                                                {"layers", Json::array(std::move(layers))},
                                                {"ranks", Json::array(std::move(ranks))}})},
                       {"bf16_rounding", largest},
                       {"max_rank", report.max_rank},
                       {"bindings", Json::array(std::move(bindings))},
                       {"left_over", Json::array(std::vector<Json>())},
                       {"notes", Json::array(report.notes)}});
}

Result<AdapterVerdict> judge_adapter(const std::string& folder, const std::string& name, const AdapterTargets& targets,
                                     const AdapterOptions& options) {
  AdapterVerdict verdict;
  std::vector<std::string> left_over;
  const auto adapter = read_adapter(folder, name, targets, options, &left_over);
  if (adapter.ok()) {
    verdict.usable = true;
    verdict.text = report_text(**adapter);
    std::vector<Json::Member> members = {{"usable", true}};
    const Json report = report_json(**adapter);
    members.insert(members.end(), report.members().begin(), report.members().end());
    verdict.json = Json::object(std::move(members));
    return verdict;
  }
  // Not the adapter's fault: a file that is not there or is no folder, no memory, a bug.
  const Code code = adapter.status().code();
  std::error_code ignored;
  if (code == Code::kNotFound || code == Code::kOutOfMemory || code == Code::kInternal ||
      !std::filesystem::is_directory(folder, ignored)) {
    return adapter.status();
  }
  verdict.text = "not usable: " + adapter.status().message() + "\n";
  verdict.json = Json::object({{"usable", false},
                               {"name", name},
                               {"code", code_info(code).name},
                               {"error", adapter.status().message()},
                               {"left_over", Json::array(left_over)}});
  return verdict;
}

}  // namespace cadre
