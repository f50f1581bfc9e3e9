// What `explain` shows people: a table for each kind of MoE layer, at most 100 columns wide.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "cli/commands.h"
#include "engine/plan.h"

namespace cadre::cli {
namespace {

constexpr std::size_t kColumns = 100;

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

std::string rows_text(int rows) { return std::to_string(rows) + (rows == 1 ? " row" : " rows"); }

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

// As many whole words as fit in `room`, with an ellipsis where some do not.
std::string shortened(const std::string& text, std::size_t room) {
  if (text.size() <= room) return text;
  std::size_t end = room > 4 ? text.rfind(' ', room - 4) : 0;
  if (end == std::string::npos) end = 0;
  return text.substr(0, end) + (end > 0 ? " ..." : "...");
}

std::string padded(std::string text, std::size_t columns) {
  if (text.size() < columns) text.append(columns - text.size(), ' ');
  return text;
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
  std::string text = device.name + ", ";
  if (device.kind == DeviceKind::kCuda) {
    text += "sm_" + std::to_string(device.sm);
  } else {
    text += std::to_string(device.cores) + (device.cores == 1 ? " core" : " cores");
  }
  if (device.avx2) text += ", avx2";
  if (device.avx512) text += ", avx512";
  if (device.avx512_bf16) text += ", avx512_bf16";
  if (device.amx_bf16) text += ", amx_bf16";
  if (device.described) text += ", described";
  return text;
}

std::string ranks_text(const Deployment& deployment) {
  std::string text;
  if (deployment.tensor_parallel > 1) text += ", tp " + std::to_string(deployment.tensor_parallel);
  if (deployment.expert_parallel > 1) text += ", ep " + std::to_string(deployment.expert_parallel);
  return text;
}

// "activation_clamp one at 7, expert_bias, +2": the codes with what was found, as many as fit; --verbose has it all.
std::string short_reasons(const std::vector<Refusal>& refusals, std::size_t room) {
  constexpr std::size_t kLongValue = 24;
  for (const bool with_values : {true, false}) {
    std::string text;
    for (std::size_t i = 0; i < refusals.size(); ++i) {
      const Refusal& refusal = refusals[i];
      std::string item = std::string(i > 0 ? ", " : "") + std::string(reason_info(refusal.code).code);
      if (with_values && refusal.got.size() <= kLongValue) item += " " + refusal.got;
      const std::size_t left = refusals.size() - i - 1;
      const std::size_t reserve = left > 0 ? 5 : 0;  // ", +12"
      if (text.size() + item.size() + reserve > room) {
        if (with_values) {
          text.clear();
          break;
        }
        text += (text.empty() ? "+" : ", +") + std::to_string(left + 1);
        break;
      }
      text += item;
    }
    if (!text.empty()) return text;
  }
  return {};
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::string all_reasons(const Candidate& candidate) {
  std::vector<std::string> parts;
  for (const Refusal& refusal : candidate.refusals) parts.push_back(message(refusal));
  for (const Refusal& refusal : candidate.waived) parts.push_back("waived: " + message(refusal));
  parts.insert(parts.end(), candidate.remedies.begin(), candidate.remedies.end());
  if (parts.empty()) parts.push_back(candidate.description);
  return join(parts);
}

// A backend that this kind of device cannot run at all has no time worth showing.
bool has_time(const Candidate& candidate) {
  return std::none_of(candidate.refusals.begin(), candidate.refusals.end(),
                      [](const Refusal& r) { return reason_info(r.code).about_device; });
}

std::vector<int> shown_counts(const Selection& selection, bool verbose) {
  std::vector<int> counts;
  for (const Candidate& candidate : selection.candidates) {
    for (const auto& [tokens, us] : candidate.predicted_us) counts.push_back(tokens);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (counts.size() > 3 && !verbose) counts = {counts.front(), counts[counts.size() / 2], counts.back()};
  if (counts.size() > 4) counts = {counts[0], counts[counts.size() / 3], counts[2 * counts.size() / 3], counts.back()};
  return counts;
}

std::string rehearsal_text(const LayerReport& report) {
  const Candidate& chosen = report.selection.candidates.front();
  char text[96];
  std::snprintf(text, sizeof text, "rehearsed in %s, error %.2g of a row's norm",
                time_text(1e6 * report.rehearsal_seconds).c_str(), report.rehearsal_error);
  std::string out = text;
  for (const auto& [rows, us] : chosen.measured_us) out += ", " + rows_text(rows) + " took " + time_text(us);
  return out;
}

bool rehearsed(const LayerReport& report) {
  return !report.selection.candidates.empty() && !report.selection.candidates.front().measured_us.empty();
}

// "layers 1,3,6,...,51 (23 of them)" where the list is long.
std::string head_text(const LayerReport& report, bool verbose = false) {
  constexpr std::size_t kLongList = 40;
  std::string list = ranges_text(report.layers);
  if (list.size() > kLongList && !verbose) {
    const std::size_t end = list.rfind(',', kLongList / 2);
    list = list.substr(0, end) + ",...," + std::to_string(report.layers.back()) + " (" +
           std::to_string(report.layers.size()) + " of them)";
  }
  if (verbose) {
    // A place to break the line, which `wrapped` takes.
    for (std::size_t at = list.find(','); at != std::string::npos; at = list.find(',', at + 2))
      list.insert(at + 1, " ");
  }
  return (report.layers.size() == 1 ? "layer " : "layers ") + list;
}

// One line a backend, the chosen first as the gate orders them.
std::string layer_text(const LayerReport& report, bool verbose) {
  const Selection& selection = report.selection;
  std::string out = wrapped(head_text(report, verbose) + ": " + describe(report.spec), 0, 2) + "\n";
  out += "  adapters: " + demand_text(report.deployment.adapters) + "\n";
  if (verbose) out += "  deployment: " + wrapped(describe(report.deployment), 14, 4) + "\n";

  const std::vector<int> counts = shown_counts(selection, verbose);
  std::size_t name_columns = std::string_view("backend").size();
  for (const Candidate& candidate : selection.candidates)
    name_columns = std::max(name_columns, candidate.backend.size());
  name_columns = std::min<std::size_t>(name_columns, 28) + 2;
  constexpr std::size_t kTimeColumns = 11, kStateColumns = 10;

  std::string head = "    " + padded("backend", name_columns) + padded("", kStateColumns);
  for (const int tokens : counts) head += padded(rows_text(tokens), kTimeColumns);
  const std::size_t why_column = head.size();
  out += head + "why\n";
  for (const Candidate& candidate : selection.candidates) {
    std::string line = (candidate.backend == selection.chosen ? "  > " : "    ") +
                       padded(candidate.backend, name_columns) +
                       padded(candidate.admitted ? "admitted" : "refused", kStateColumns);
    for (const int tokens : counts) {
      const auto us = candidate.predicted_us.find(tokens);
      const bool known = us != candidate.predicted_us.end() && has_time(candidate);
      line += padded(known ? time_text(us->second) : "-", kTimeColumns);
    }
    line = padded(line, why_column);
    const std::size_t room = kColumns - std::min(kColumns - 12, line.size());
    if (verbose) {
      line += wrapped(all_reasons(candidate), line.size(), why_column);
    } else if (!candidate.refusals.empty()) {
      line += short_reasons(candidate.refusals, room);
    } else {
      line += shortened(candidate.remedies.empty() ? candidate.description : join(candidate.remedies), room);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const std::string& warning : selection.warnings) out += "  ! " + wrapped(warning, 4, 4) + "\n";
  if (rehearsed(report)) out += "  " + wrapped(rehearsal_text(report), 2, 4) + "\n";
  return out;
}

}  // namespace

std::string explain_text(const std::vector<LayerReport>& layers, bool verbose) {
  if (layers.empty()) return "no MoE layers\n";
  const Policy& policy = layers.front().selection.policy;
  const Deployment& deployment = layers.front().deployment;
  std::string out = "device  " + device_text(deployment.device) + ranks_text(deployment) + "\npolicy  " +
                    to_string(policy) + " (" + policy.origin + ")\n";
  for (const LayerReport& report : layers) out += "\n" + layer_text(report, verbose);
  return out;
}

std::vector<std::string> start_lines(const std::vector<LayerReport>& layers) {
  std::vector<std::string> lines;
  for (const LayerReport& report : layers) {
    const Policy& policy = report.selection.policy;
    lines.push_back(head_text(report) + ": " + report.selection.chosen + " by " + to_string(policy) + " (" +
                    policy.origin + "), " + (rehearsed(report) ? rehearsal_text(report) : "not rehearsed"));
  }
  return lines;
}

}  // namespace cadre::cli
