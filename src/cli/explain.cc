// cadre explain: which backend runs which MoE layers, and why not the others.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "base/result.h"
#include "cli/commands.h"
#include "io/json.h"
#include "moe/record.h"
#include "moe/spec_json.h"

namespace cadre::cli {
namespace {

constexpr std::size_t kColumns = 100;

// {0, 1, 2, 5} -> "0-2,5"
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

std::string time_text(double us) {
  char text[32];
  if (us < 1000) {
    std::snprintf(text, sizeof text, "%.*f us", us < 100 ? 1 : 0, us);
  } else if (us < 1e6) {
    std::snprintf(text, sizeof text, "%.*f ms", us < 1e5 ? 1 : 0, us / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f s", us / 1e6);
  }
  return text;
}

// Text broken between words, every line after the first starting with `indent` spaces. `at`: columns already used.
std::string wrapped(const std::string& text, std::size_t at, std::size_t indent) {
  std::istringstream words(text);
  std::string out, word;
  while (words >> word) {
    if (!out.empty()) {
      if (at + 1 + word.size() > kColumns) {
        out += "\n" + std::string(indent, ' ');
        at = indent;
      } else {
        out += ' ';
        ++at;
      }
    }
    out += word;
    at += word.size();
  }
  return out;
}

std::string padded(std::string text, std::size_t columns) {
  if (text.size() < columns) text.append(columns - text.size(), ' ');
  return text;
}

std::string spec_text(const LayerSpec& spec) {
  std::ostringstream out;
  out << spec.experts << " experts, top-" << spec.top_k << ", hidden " << spec.hidden << ", intermediate "
      << spec.intermediate;
  if (spec.latent > 0) out << ", latent " << spec.latent;
  out << ", " << to_string(spec.activation.kind) << (spec.activation.gated ? " gated" : " without a gate") << ", "
      << to_string(spec.weights.type) << ", " << to_string(spec.routing.kind);
  if (spec.routing.groups > 1) out << " in " << spec.routing.groups << " groups";
  if (spec.shared_experts > 0) out << ", " << spec.shared_experts << " shared";
  return std::move(out).str();
}

std::string demand_text(const AdapterDemand& demand) {
  if (!demand.any()) return "none on these layers";
  std::string text =
      "up to " + std::to_string(demand.max_adapters) + ", rank up to " + std::to_string(demand.max_rank) + ", on";
  if ((demand.projections & kGate) != 0) text += " gate";
  if ((demand.projections & kUp) != 0) text += " up";
  if ((demand.projections & kDown) != 0) text += " down";
  return text;
}

std::string device_text(const DeviceCaps& device) {
  std::string text = device.name + ", " + std::to_string(device.cores) + (device.cores == 1 ? " core" : " cores");
  if (device.avx2) text += ", avx2";
  if (device.avx512) text += ", avx512";
  if (device.avx512_bf16) text += ", avx512_bf16";
  if (device.amx_bf16) text += ", amx_bf16";
  return text;
}

std::string why_text(const Candidate& candidate, bool chosen) {
  std::string text;
  for (const Refusal& refusal : candidate.refusals) text += (text.empty() ? "" : "; ") + message(refusal);
  for (const Refusal& refusal : candidate.waived) text += (text.empty() ? "" : "; ") + ("waived: " + message(refusal));
  for (const std::string& remedy : candidate.remedies) text += (text.empty() ? "" : "; ") + remedy;
  return text.empty() && chosen ? "chosen" : text;
}

// One line a backend, the chosen first as the gate orders them.
std::string layer_text(const LayerReport& report) {
  const Selection& selection = report.selection;
  std::string out = report.layers.size() == 1 ? "layer " : "layers ";
  out += ranges_text(report.layers);
  out += ": " + wrapped(spec_text(report.spec), out.size() + 2, 2) + "\n";
  out += "  adapters: " + demand_text(report.deployment.adapters) + "\n";

  std::vector<int> counts;  // rows of the predictions shown: of the token mix, at most the two ends
  for (const Candidate& candidate : selection.candidates) {
    for (const auto& [tokens, us] : candidate.predicted_us) counts.push_back(tokens);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (counts.size() > 2) counts = {counts.front(), counts.back()};

  std::size_t name_columns = std::string_view("backend").size();
  for (const Candidate& candidate : selection.candidates)
    name_columns = std::max(name_columns, candidate.backend.size());
  name_columns = std::min<std::size_t>(name_columns, 28) + 2;
  constexpr std::size_t kTimeColumns = 11, kStateColumns = 10;

  std::string head = "    " + padded("backend", name_columns) + padded("", kStateColumns);
  for (const int tokens : counts)
    head += padded(std::to_string(tokens) + (tokens == 1 ? " row" : " rows"), kTimeColumns);
  const std::size_t why_column = head.size();
  out += head + "why\n";
  for (const Candidate& candidate : selection.candidates) {
    const bool chosen = candidate.backend == selection.chosen;
    std::string line = (chosen ? "  > " : "    ") + padded(candidate.backend, name_columns) +
                       padded(candidate.admitted ? "admitted" : "refused", kStateColumns);
    for (const int tokens : counts) {
      const auto us = candidate.predicted_us.find(tokens);
      line += padded(us == candidate.predicted_us.end() ? "-" : time_text(us->second), kTimeColumns);
    }
    line = padded(line, why_column);
    line += wrapped(why_text(candidate, chosen), line.size(), why_column);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const std::string& warning : selection.warnings) out += "  ! " + wrapped(warning, 4, 4) + "\n";
  return out;
}

Json report_json(const std::vector<LayerReport>& layers, const DeviceCaps& device, const Policy& policy) {
  std::vector<Json> items;
  for (const LayerReport& report : layers) {
    std::vector<Json> candidates;
    for (const Candidate& candidate : report.selection.candidates) candidates.push_back(to_json_value(candidate));
    const std::string& chosen = report.selection.chosen;
    items.push_back(Json::object({{"layers", Json::array(report.layers)},
                                  {"spec", to_json_value(report.spec)},
                                  {"chosen", chosen.empty() ? Json() : Json(chosen)},
                                  {"candidates", Json::array(std::move(candidates))},
                                  {"warnings", Json::array(report.selection.warnings)}}));
  }
  return Json::object(
      {{"device", device.name}, {"policy", to_json_value(policy)}, {"layers", Json::array(std::move(items))}});
}

// The gate's answer under the policy for every layer, those without a backend included, where opening an engine would
// stop at the first. `automatic` are the reports of an engine under the policy auto.
Result<std::vector<LayerReport>> select_all(const std::vector<LayerReport>& automatic, const Policy& policy,
                                            Status* no_backend) {
  std::vector<LayerReport> layers = automatic;
  for (LayerReport& report : layers) {
    Selection all;
    Result<Selection> selection = select(report.spec, report.deployment, policy, &all);
    if (selection.ok()) {
      report.selection = *std::move(selection);
      continue;
    }
    if (selection.status().code() != Code::kNoBackend) return std::move(selection).status();
    report.selection = std::move(all);
    if (no_backend->ok()) {
      *no_backend = std::move(selection).status().with_context("layers " + ranges_text(report.layers));
    }
  }
  return layers;
}

}  // namespace

std::string explain_text(const std::vector<LayerReport>& layers) {
  if (layers.empty()) return "no MoE layers\n";
  const Policy& policy = layers.front().selection.policy;
  std::string out = "device  " + device_text(layers.front().deployment.device) + "\npolicy  " + to_string(policy) +
                    " (" + policy.origin + ")\n";
  for (const LayerReport& report : layers) out += "\n" + layer_text(report);
  return out;
}

int execute(const ExplainCommand& command) {
  EngineOptions options = command.engine;
  const Policy policy = options.backend;
  options.backend = Policy{};
  Result<std::unique_ptr<Engine>> opened = open_engine(std::move(options));
  if (!opened.ok()) return report(opened.status());
  const Engine& engine = **opened;

  Status no_backend;
  const Result<std::vector<LayerReport>> layers = select_all(engine.selection(), policy, &no_backend);
  if (!layers.ok()) return report(layers.status());
  Output out;
  if (command.json) {
    JsonDumpOptions pretty;
    pretty.indent = 2;
    out.write(report_json(*layers, this_device(), policy).dump(pretty) + "\n");
  } else {
    out.write("model   " + engine.model_type() + " in " + command.engine.model_dir + "\n" + explain_text(*layers));
  }
  return out.exit_code(no_backend.ok() ? 0 : report(no_backend));
}

}  // namespace cadre::cli
